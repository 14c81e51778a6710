"""TSD: self-distillation towards prototypes made of the stream's most certain features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from holdfast import Learner, register, setting
from holdfast.parts import Joined, Network, Step, Supports, Task, Term, TermResult


class View(NamedTuple):
    """A batch beside the bank with the batch in it: the log-softmax over prototypes, and which
    images are used."""

    joined: Joined
    log_q: Tensor
    used: Tensor


class PrototypeAgreement(Term):
    """Mean of KL(q ‖ r): q from the products of the feature with the prototypes, r from the head.

    official: both normalised to a sum of 1 (an argument of the released code lands in the wrong
    place), r the softmax of a softmax. published: cosines, r the softmax, and only images for which
    prototypes and head agree on the class.
    """

    def __init__(self, network: Network, keep: int, published: bool):
        super().__init__("prototypes")
        self.published = published
        self.order = 2.0 if published else 1.0
        self.supports = Supports(network, keep, scored=True)

    def view(self, step: Step) -> View:
        joined = self.supports.join(step.features.detach(), step.logits.detach(), step.newest)
        prototypes = self.directions(self.supports.class_sums(joined))
        log_q = (self.directions(step.features) @ prototypes.T).log_softmax(1)
        used = log_q.argmax(1) == step.labels
        used = used if self.published else torch.ones_like(used)
        return View(joined, log_q, used.nonzero().squeeze(1))

    def directions(self, x: Tensor) -> Tensor:
        return nn.functional.normalize(x, p=self.order, dim=-1)

    def forward(self, step: Step) -> TermResult:
        joined, log_q, used = step.cached(self.view)
        log_r = step.log_probabilities.detach()
        log_r = log_r if self.published else log_r.exp().log_softmax(1)
        divergence = (log_q.exp() * (log_q - log_r)).sum(1)[used]
        loss = divergence.mean() if len(used) else None
        return TermResult(loss, len(used), lambda: self.supports.take(joined))


class LocalAgreement(Term):
    """Mean over an image's nearest supports of similarity · Σ (prediction − support's softmax)².

    official: of the logits, with a minus sign, so that it drives them apart, as released.
    published: of the softmax, so that it draws them together.
    """

    def __init__(self, weight: float, prototypes: PrototypeAgreement, neighbours: int):
        super().__init__("local", weight)
        self.view: Callable[[Step], View] = prototypes.view
        self.directions = prototypes.directions
        self.bank: Callable[[], Supports] = lambda: prototypes.supports
        self.published = prototypes.published
        self.neighbours = neighbours

    def forward(self, step: Step) -> TermResult | None:
        joined, _, used = step.cached(self.view)
        if not len(used):
            return None
        similarity, scores = self._nearest(step, joined)
        prediction = step.log_probabilities.exp() if self.published else step.logits
        apart = ((prediction[:, None] - scores) ** 2).sum(2)
        loss = (similarity * apart)[used].mean()
        return TermResult(loss if self.published else -loss, len(used))

    @torch.no_grad()
    def _nearest(self, step: Step, joined: Joined) -> tuple[Tensor, Tensor]:
        """Similarity (B, K) and softmax (B, K, C) of each image's nearest supports."""
        bank, features = self.bank(), self.directions(step.features)
        filled = bank.entropies < torch.inf
        filled[joined.classes] = joined.stays
        # The bank is multiplied as it lies: a copy of it would be large.
        old = features @ bank.directions.flatten(0, 1).T
        old = old if self.published else old / bank.lengths.flatten().clamp_min(1e-12)
        old = old.masked_fill(~filled.flatten(), -torch.inf)
        # Of a window, only the newest images enter.
        entering = joined.enters + len(features) - step.newest
        similarity = torch.cat([old, features @ features[entering].T], 1)
        available = int(filled.sum()) + len(entering)
        near = similarity.topk(min(self.neighbours, available), dim=1)
        scores = bank.scores.flatten(0, 1)[near.indices.clamp_max(old.shape[1] - 1)]
        if len(entering):
            entered = near.indices - old.shape[1]
            from_batch = step.detached_probabilities[entering[entered.clamp_min(0)]]
            scores = torch.where((entered < 0)[:, :, None], scores, from_batch)
        return near.values, scores


@register("tsd")
@dataclass(frozen=True)
class Tsd(Learner):
    """Draws predictions by prototypes and by the head together, and looks at nearest neighbours.

    L = KL(softmax of f · P ‖ softmax of the head) + λ · similarity · ‖prediction − neighbour's‖²
    """

    paper: ClassVar[str] = (
        "Wang et al. 2023, Feature alignment and uniformity for test time adaptation, "
        "arXiv 2303.10902"
    )
    note: ClassVar[str] = (
        "mode=official does what the released code does: its products are so small that weights "
        "hardly move, and its local term has the opposite sign. mode=published follows the text."
    )
    keeps_samples: ClassVar[bool] = True
    memory: ClassVar[str] = (
        "classes × keep × (features + classes) numbers of supports, and as much again for reset(): "
        "2.4 GB in float32 for 1,000 classes, 100 supports and 2,048 features"
    )

    lr: float = setting(5e-5)
    optimizer: Literal["sgd", "adam"] = setting("adam")
    select: Literal["norm", "body", "all"] = setting("all")
    keep: int = setting(100, "supports of a class, those of lowest entropy", at_least=1)
    neighbours: int = setting(3, "supports that an image is compared with", at_least=1)
    weight_local: float = setting(0.1, "λ of the local term; 0 leaves it out", at_least=0)
    mode: Literal["official", "published"] = setting(
        "official", "as the released code does it, or as its paper says"
    )

    def terms(self, task: Task) -> list[Term]:
        prototypes = PrototypeAgreement(task.network, self.keep, self.mode == "published")
        if not self.weight_local:
            return [prototypes]
        return [prototypes, LocalAgreement(self.weight_local, prototypes, self.neighbours)]

    def always_drives(self) -> bool:
        return self.mode == "official"
