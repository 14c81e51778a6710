"""asr: go back part of the way when predictions gather in few classes, and be pulled towards what
was good before."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from holdfast import Method, register, setting
from holdfast.parts import Outcome, Pull, Step, Task, Term, TermResult, Upkeep

# The share of the goal so far in the next one.
OLD = 0.9


class AdaptiveReset(Upkeep):
    """When the entropy of the mean prediction falls below a level that follows it, weights go back
    to the source, the first ones not if it is only a little below; and the goal moves to the means
    of the stretch since the last reset.

    level: ℓ. pull: λ of the next batch. squares, weights: sums over `batches` of (∂L/∂θ)² and θ.
    information, place: the goal F̄ and θ̄, if `known`.
    """

    after = "batch"

    def __init__(self, method: Asr, task: Task):
        super().__init__()
        self.method, self.anchor = method, task.anchor
        self.trained = dict(task.parameters)
        self.first_level = math.log(task.network.classes * method.start)
        flat = torch.zeros_like(self._now())
        self.squares, self.weights = nn.Buffer(flat.clone()), nn.Buffer(flat.clone())
        self.information, self.place = nn.Buffer(flat.clone()), nn.Buffer(flat.clone())
        self.level = nn.Buffer(torch.tensor(self.first_level, dtype=torch.float64))
        self.pull = nn.Buffer(torch.zeros((), dtype=torch.float64))
        self.batches = nn.Buffer(torch.zeros((), dtype=torch.int64))
        self.known = nn.Buffer(torch.zeros((), dtype=torch.bool))

    def _now(self) -> Tensor:
        # One flat vector: a handful of kernels, however many layers train.
        flat = torch.cat([parameter.reshape(-1) for parameter in self.trained.values()])
        return flat.to(torch.promote_types(flat.dtype, torch.float32))

    def add(self, gradient: Mapping[str, Tensor | None]) -> Callable[[], None]:
        """Take in a batch's gradient, and the weights that it was taken at."""
        now = self._now().detach()
        parts = [
            torch.zeros_like(weight) if (own := gradient[name]) is None else own
            for name, weight in self.trained.items()
        ]
        squares = torch.cat([part.detach().reshape(-1) for part in parts]).to(now).square()

        def commit() -> None:
            self.squares.add_(squares)
            self.weights.add_(now)
            self.batches.add_(1)

        return commit

    def loss(self) -> Tensor | None:
        """λ Σ F̄ (θ − θ̄)², once there is a goal."""
        if not self.known:
            return None
        return float(self.pull) * (self.information * (self._now() - self.place).square()).sum()

    def forward(self, outcome: Outcome) -> None:
        # What was learnt from: a host that learns from a view never looked at the batch itself.
        step, method = outcome.proposal.seen or outcome.step, self.method
        if not step.record:
            return  # one image alone, that was only predicted
        mean = step.logits.detach().cpu().double().mean(0)
        entropy = float(torch.special.entr(mean.softmax(0)).sum())
        # As when learning: by batch statistics, also where predictions go by running ones.
        source = Step(self.anchor, step.images, aside=True).labels
        apart = float((source != step.labels).cpu().double().mean())
        self.pull.fill_(method.weight * apart**2)
        level = float(self.level)
        if entropy < level:
            self._move_goal()
            share = max(method.keep - method.slope * (level - entropy), 0.0)
            count = len(self.trained)
            outcome.forget(keep=[n for i, n in enumerate(self.trained) if i < share * count])
            self.level.fill_(self.first_level)
        else:
            self.level.fill_(level + method.drift * (1 - apart) * (entropy - level))

    def _move_goal(self) -> None:
        """To the means since the last reset, by a part, or all the way if there was none."""
        batches, old = self.batches.clamp_min(1), OLD if self.known else 0.0
        for goal, total in ((self.information, self.squares), (self.place, self.weights)):
            goal.mul_(old).add_(total / batches, alpha=1 - old)
            total.zero_()
        self.batches.zero_()
        self.known.fill_(True)


class GoalPull(Pull):
    """The rule's pull towards its goal; what is kept for it is the rule's, which a reset leaves
    alone."""

    def __init__(self, rule: AdaptiveReset):
        super().__init__("goal")
        self.add, self.loss = rule.add, rule.loss

    def told(self, gradient: Mapping[str, Tensor | None]) -> Callable[[], None]:
        return self.add(gradient)

    def forward(self, step: Step) -> TermResult | None:
        loss = self.loss()
        return None if loss is None else TermResult(loss, len(step.images))


@register("asr")
@dataclass(frozen=True)
class Asr(Method):
    """Resets the later layers when predictions gather in few classes, and pulls towards a goal.

    L += λ Σ F̄ (θ − θ̄)²;  layers from κ n on ← θ0 when H(softmax(mean logits)) < ℓ
    """

    paper: ClassVar[str] = "ASR, adaptive and selective reset, ICLR 2026 (YonseiML/asr)"
    note: ClassVar[str] = (
        "It takes batches of about as many images of each class: where labels come sorted, mean "
        "predictions are in few classes by nature, and it resets all the time. With few classes "
        "the level starts far below what batches have, so that start has to be higher. A reset "
        "also takes back averages, prototypes and the optimiser's state, of all layers. The "
        "gradient is the host's own, of all its terms and plug-ins, also where it takes no step "
        "(then of EATA's Fisher anchor alone); on sar that of the first look. What refines "
        "predictions comes after the check. It was published with eta, eata and roid; debias, its "
        "terms counted in the gradient, was not among them."
    )
    memory: ClassVar[str] = "a copy of the network, and four numbers for each weight that trains"
    plugin: ClassVar[bool] = True
    standalone: ClassVar[bool] = False
    needs_host: ClassVar[bool] = True
    resets: ClassVar[bool] = True
    # The logarithm of 0: no entropy is below that, and without a reset there is no goal.
    neutral: ClassVar = {"start": 0.0}

    drift: float = setting(
        0.15, "how fast the level follows, where no label changed", at_least=0, at_most=1
    )
    weight: float = setting(
        5.0, "λ = this · the squared share of labels unlike the source model's", at_least=0
    )
    start: float = setting(0.5, "the level starts at ln(this · C)", at_least=0, at_most=1)
    keep: float = setting(
        0.5,
        "share of the trained tensors that a reset leaves alone, at most",
        at_least=0,
        at_most=1,
    )
    slope: float = setting(20.0, "how much less of them for each nat below the level", at_least=0)

    def objection(self, host: Method | None) -> str | None:
        if host is not None and host.keeps_images:
            return (
                f"{host.name} learns from a memory, at times of its own, and asr sums a gradient "
                "for each batch: put it on a method that learns from the batch, as in eata+asr."
            )
        return super().objection(host)

    def _rule(self, task: Task) -> AdaptiveReset:
        return AdaptiveReset(self, task)

    def terms(self, task: Task) -> list[Term]:
        return [GoalPull(task.cached(self._rule))] if self.has_effect() else []

    def upkeep(self, task: Task) -> list[Upkeep]:
        return [task.cached(self._rule)] if self.has_effect() else []

    def forwards_beside(self) -> tuple[int, int]:
        return (1, 1) if self.has_effect() else (0, 0)
