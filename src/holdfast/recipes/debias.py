"""debias: the paper's plug-in. EMA target prototypes keep classes apart, source prototypes hold
features near where they came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from holdfast import Learner, register, setting
from holdfast.parts import Balance, ClassShares, Step, Task, Term, TermResult
from holdfast.util.settings import Value


class EmaPrototypes(Term):
    """L_ema = mean over R of CE(f · P/‖P‖, ŷ); then P[c] ← α P[c] + (1 − α) u[c] for each class c
    in R, u[c] being the normalised mean feature of its images.

    f is raw, there is no temperature, and no gradient reaches P. With `shares`, images of classes
    that are predicted often count less.
    """

    def __init__(self, method: Debias, rows: Tensor, shares: ClassShares | None = None):
        super().__init__("ema", method.lambda_ema)
        self.method = method
        self.weights = None if shares is None else shares.weights
        start = nn.functional.normalize(rows, dim=1) if method.normalize else rows.clone()
        self.prototypes = nn.Buffer(start)
        # Kept beside the prototypes, so that a batch never has to read all of them for their norms.
        self.norms = nn.Buffer(torch.linalg.vector_norm(start, dim=1))

    def forward(self, step: Step) -> TermResult | None:
        return step.cached(self._loss)

    def _loss(self, step: Step) -> TermResult | None:
        chosen = self.method.chosen(step)
        if not len(chosen):
            return None
        features = step.features[chosen]
        labels = step.labels[chosen]
        similarity = features @ self.prototypes.T / self.norms.clamp_min(1e-12)
        target = step.detached_probabilities[chosen] if self.method.labels == "soft" else labels
        if self.weights is None:
            loss = nn.functional.cross_entropy(similarity, target)
        else:
            losses = nn.functional.cross_entropy(similarity, target, reduction="none")
            loss = (self.weights(labels) * losses).mean()
        return TermResult(loss, len(chosen), lambda: self.update(features.detach(), labels))

    @property
    def class_prototypes(self) -> Tensor:
        return self.prototypes

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Blend each class's mean feature into its prototype; the cost does not grow with C."""
        classes, class_index = torch.unique(labels, return_inverse=True)
        member = nn.functional.one_hot(class_index, len(classes)).T.to(features.dtype)
        mean = member @ features / member.sum(1, keepdim=True)
        if self.method.normalize:
            mean = nn.functional.normalize(mean, dim=1)
        alpha = self.method.alpha
        blended = alpha * self.prototypes[classes] + (1 - alpha) * mean
        self.prototypes[classes] = blended
        self.norms[classes] = torch.linalg.vector_norm(blended, dim=1)


class SourceAlignment(Term):
    """L_src = mean over R of ‖Ps[ŷ] − f‖², over feature dimensions a mean, a sum, or sum/1024.

    Images whose class has no source prototype are left out. With `shares`, images of classes that
    are predicted often count less, and the square is divided by σ².
    """

    def __init__(
        self,
        method: Debias,
        prototypes: Tensor,
        known: Tensor,
        shares: ClassShares | None = None,
        width: float = 1.0,
    ):
        super().__init__("src", method.lambda_src)
        self.method = method
        self.weights = None if shares is None else shares.weights
        dimensions = {"mean": prototypes.shape[1], "sum": 1, "scaled": 1024}
        self.divisor = dimensions[method.src_reduction] if shares is None else width**2
        self.prototypes = nn.Buffer(prototypes, persistent=False)
        self.known = nn.Buffer(known, persistent=False)

    def forward(self, step: Step) -> TermResult | None:
        return step.cached(self._loss)

    def _loss(self, step: Step) -> TermResult | None:
        chosen = self.method.chosen(step)
        chosen = chosen[self.known[step.labels[chosen]]]
        if not len(chosen):
            return None
        labels = step.labels[chosen]
        apart = self.prototypes[labels] - step.features[chosen]
        distances = (apart * apart).sum(1)
        if self.weights is not None:
            distances = self.weights(labels) * distances
        return TermResult(distances.mean() / self.divisor, len(chosen))


AUTO = (
    "Under balance=auto lambda_ema, lambda_src (unless 0) and src_reduction have no effect, nor "
    "has what a host would set them to: both terms pull at a pace that follows from how far they "
    "move weights and features (parts/balance.py has the rule), images of classes that are "
    "predicted often count less, and with each step weights go up to 3 % of the way back to the "
    "source's. A weight of 0 still leaves its term out, and both 0 is the host. With Adam the "
    "learning rate alone sets the pace: there the rule only keeps the terms in proportion to the "
    "host. Where the host's gradient does not pass the features that debias sees (it learns from "
    "a view, or replays), what the host moves is counted as moved by the terms, so that they go "
    "slower. docs/results/auto.md has what it was chosen on and what it did; it is not the "
    "paper's, and opt-in."
)


@register("debias")
@dataclass(frozen=True)
class Debias(Learner):
    """Keeps classes apart by EMA target prototypes, and features near their source prototypes.

    L = L_host + λ_ema · CE(f · P/‖P‖, ŷ) + λ_src · ‖Ps[ŷ] − f‖², over images with H < E0
    """

    paper: ClassVar[str] = (
        "Chung, Hwang, Yoo, Kwak, Mitigating the bias in the model for continual test-time "
        "adaptation, arXiv 2403.01344"
    )
    memory: ClassVar[str] = "two prototypes a class"
    tunes: ClassVar = {"lr": (1, 4, 16)}
    plugin: ClassVar[bool] = True
    groups: ClassVar[bool] = True
    neutral: ClassVar = {"lambda_ema": 0.0, "lambda_src": 0.0}
    standalone: ClassVar[bool] = False
    presets: ClassVar = {
        "cifar100-c": {"src_reduction": "mean"},
        "imagenet-c": {"src_reduction": "mean"},
    }
    alone: ClassVar[dict[str, Value]] = {"lambda_src": 20.0}
    # λ_src = 0.01 only acts under a sum: with RMT the paper means another reduction.
    on: ClassVar = {
        ("rmt", None): {"src_reduction": "sum", "lambda_src": 0.01, "lambda_ema": 0.5},
        ("rmt", "cifar100-c"): {"lambda_ema": 1.0},
    }
    replaces: ClassVar = {"cotta": {"predict": "student", "lr": 1e-4}}

    alpha: float = setting(0.996, "share of the old prototype in an update", at_least=0, at_most=1)
    lambda_ema: float = setting(2.0, "weight of L_ema; 0 leaves it out", at_least=0)
    lambda_src: float = setting(50.0, "weight of L_src; 0 leaves it out", at_least=0)
    normalize: bool = setting(True, "normalise head rows and mean features before they enter P")
    filter: bool = setting(True, "only reliable images count; false: the whole batch")
    labels: Literal["hard", "soft"] = setting("hard", "target of L_ema: arg-max, or the softmax")
    src_reduction: Literal["scaled", "mean", "sum"] = setting(
        "scaled", "L_src over feature dimensions: sum/1024, mean or sum"
    )
    statistics: Literal["source", "batch"] = setting(
        "source", "batch norm while source prototypes are made: running, or each batch's own"
    )
    entropy_factor: float = setting(0.4, "E0 = this · ln C; reliable: H < E0", at_least=0)
    balance: Literal["fixed", "auto"] = setting(
        "fixed", "weights of both terms: λ_ema and λ_src, or set by a rule along the stream"
    )

    def chosen(self, step: Step) -> Tensor:
        """Indices of the images that count."""
        return step.chosen(self.entropy_factor if self.filter else None)

    def terms(self, task: Task) -> list[Term]:
        if self._balances():
            return self._balanced_terms(task)
        terms: list[Term] = []
        if self.lambda_ema:
            terms.append(EmaPrototypes(self, task.network.rows))
        if self.lambda_src:
            terms.append(SourceAlignment(self, *task.prototypes(self.statistics)))
        return terms

    def _balanced_terms(self, task: Task) -> list[Term]:
        rows, width = task.network.rows, task.class_width(self.statistics)
        shares = ClassShares(rows)
        ema = EmaPrototypes(self, rows, shares) if self.lambda_ema else None
        src = None
        if self.lambda_src:
            src = SourceAlignment(self, *task.prototypes(self.statistics), shares, width)
        balance = Balance(ema, src, shares, self.chosen, width, task.parameters)
        return [*balance.own, balance]

    def needs(self) -> tuple[str, ...]:
        return ("prototypes",) if self.lambda_src or self._balances() else ()

    def _balances(self) -> bool:
        return self.balance == "auto" and self.has_effect()

    def can_group(self) -> bool:
        return not self._balances()  # which goes by the gradient of a stream of its own

    def noted(self) -> str:
        return AUTO if self.balance == "auto" else ""

    def takes_memory(self) -> str:
        return f"{self.memory}, and a copy of what trains" if self._balances() else self.memory

    def always_drives(self) -> bool:
        return self.lambda_ema > 0 and not self.filter
