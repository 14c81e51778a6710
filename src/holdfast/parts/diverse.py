"""Losses over predictions that are sure and unlike the average one, as ROID weighs them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from holdfast.engine.step import Step
from holdfast.parts.augment import Augment
from holdfast.parts.terms import Term, TermResult


class Weighed(NamedTuple):
    """Indices of the images that count, their weights, and what a sum over them is divided by."""

    kept: Tensor
    weights: Tensor
    divisor: int


class DiverseWeights(nn.Module):
    """w = exp(a·b/T); a = 1 − cos(q, p) and b = −H, each rescaled to [0, 1] within the batch. Left
    out: a below its mean. Then q ← m q + (1 − m) · mean p over all images; it starts even.

    weighs: if not, every image counts 1, and q stays as it is.
    largest: sums are divided by the largest batch so far, else by this one.
    """

    def __init__(
        self, like: Tensor, *, weighs: bool, momentum: float, temperature: float, largest: bool
    ):
        super().__init__()
        self.weighs, self.momentum, self.temperature = weighs, momentum, temperature
        self.by_largest = largest
        self.q = nn.Buffer(torch.full_like(like[:, 0], 1 / len(like)))
        self.largest = nn.Buffer(torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def weigh(self, step: Step) -> Weighed:
        """To be asked through `step.cached`, so that all who ask share it."""
        p = step.detached_probabilities
        divisor = max(int(self.largest), len(p)) if self.by_largest else len(p)
        if not self.weighs:
            return Weighed(torch.arange(len(p), device=p.device), torch.ones_like(p[:, 0]), divisor)
        unlike = rescaled(1 - torch.cosine_similarity(self.q[None], p, dim=1))
        sure = rescaled(-step.entropy.detach())
        chosen = (~(unlike < unlike.mean())).nonzero().squeeze(1)
        weights = (unlike * sure / self.temperature).exp()
        return Weighed(chosen, weights[chosen], divisor)

    def take(self, p: Tensor) -> None:
        """Take a batch of predictions in."""
        if self.weighs:
            self.q.lerp_(p.mean(0), 1 - self.momentum)
        self.largest.clamp_min_(len(p))


def rescaled(values: Tensor) -> Tensor:
    """To [0, 1]; where all are equal, as far as rounding tells, to 0. Then each weighs 1, and none
    is below the mean."""
    low, high = values.aminmax()
    spread = high - low
    rounding = 8 * torch.finfo(values.dtype).eps * values.abs().amax().clamp_min(1)
    return torch.where(spread > rounding, (values - low) / spread, 0)


class LikelihoodRatio(Term):
    """Σ w·l / B, l = −Σ r ln(r/(1 − r) + 1e-5), r = p but at most 0.99."""

    def __init__(self, weights: DiverseWeights):
        super().__init__("likelihood")
        self.weights = weights

    def forward(self, step: Step) -> TermResult:
        chosen, weights, divisor = step.cached(self.weights.weigh)
        r = step.probabilities[chosen].clamp(max=0.99)
        losses = -(r * (r / (1 - r) + 1e-5).log()).sum(1)
        p = step.detached_probabilities
        return TermResult(
            (weights * losses).sum() / divisor, len(chosen), lambda: self.weights.take(p)
        )


class ViewAgreement(Term):
    """Σ w·(−½ Σ p log p′ − ½ Σ p′ log p) / B, p′ being the prediction for a new view of the images
    that count, normalised among themselves. Both sides carry gradient."""

    def __init__(self, weight: float, weights: DiverseWeights, augment: Augment):
        super().__init__("agreement", weight)
        self.weigh = weights.weigh
        self.augment = augment

    def forward(self, step: Step) -> TermResult | None:
        chosen, weights, divisor = step.cached(self.weigh)
        if len(chosen) == 1 and step.network.by_batch:
            return None  # one image has no batch statistics to be seen by
        view = step.view(self.augment(step.images[chosen]), of=chosen)
        p, log_p = step.probabilities[chosen], step.log_probabilities[chosen]
        losses = -0.5 * (p * view.log_probabilities + view.probabilities * log_p).sum(1)
        return TermResult((weights * losses).sum() / divisor, len(chosen), self.augment.commit)
