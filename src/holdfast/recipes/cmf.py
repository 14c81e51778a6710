"""CMF: ROID's losses, with weights that follow a filtered copy between source and stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from holdfast import register, setting
from holdfast.parts import Settle, Task
from holdfast.recipes.roid import NOTE, Diverse

# Numbers in the layer norms of ViT-B, for which the noise was chosen.
USUAL_SIZE = 38400
LEAST = 0.89
# From here on, what is seen adds nothing.
ENOUGH = 0.9999


class MomentumFilter(Settle):
    """A Kalman-like filter over all that trains in the network, with a hidden copy h and its
    variance v, which start at the source and at 0:

    h ← α h + (1 − α) θ0;  v ← α² v + Q;  β = (1 − Q)/(v + 1 − Q), at least 0.89, and 1 from 0.9999
    on;  v ← β v;  h ← β h + (1 − β) θ;  θ ← γ θ + (1 − γ) h
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], method: Cmf):
        super().__init__()
        # Themselves, not their data, which another memory format puts elsewhere.
        self.weights = list(parameters.values())
        self.sizes = [weight.numel() for weight in self.weights]
        self.alpha, self.gamma = method.hidden_momentum, method.model_momentum
        self.noise = method.noise * sum(self.sizes) / USUAL_SIZE
        # One flat vector: a handful of kernels, however many layers train.
        self.source = nn.Buffer(self._now(), persistent=False)
        self.hidden = nn.Buffer(self._now())
        self.variance = nn.Buffer(torch.zeros((), dtype=torch.float64))

    def _now(self) -> Tensor:
        return torch.cat([weight.detach().reshape(-1) for weight in self.weights])

    @torch.no_grad()
    def forward(self) -> None:
        self.hidden.lerp_(self.source, 1 - self.alpha)
        self.variance.mul_(self.alpha**2).add_(self.noise)
        beta = max((1 - self.noise) / (float(self.variance) + 1 - self.noise), LEAST)
        if beta >= ENOUGH:
            beta = 1.0
        self.variance.mul_(beta)
        if beta < 1:
            self.hidden.lerp_(self._now(), 1 - beta)
        parts = torch.split(self.hidden, self.sizes)
        hidden = [part.view(w.shape) for part, w in zip(parts, self.weights, strict=True)]
        torch._foreach_lerp_([*self.weights], hidden, 1 - self.gamma)


@register("cmf")
@dataclass(frozen=True)
class Cmf(Diverse):
    """ROID with its way back to the source replaced by a filter over the weights of the stream.

    L as roid's;  h ← β (α h + (1 − α) θ0) + (1 − β) θ;  θ ← γ θ + (1 − γ) h;  z ← z · prior
    """

    paper: ClassVar[str] = (
        "Lee, Chang 2024, Continual momentum filtering on parameter space for online test-time "
        "adaptation"
    )
    note: ClassVar[str] = (
        "Without the authors' own repository at hand, it follows the port in ROID's. How far the "
        "stream enters h goes by how many numbers train: on small nets β is 1, and h the source; a "
        "larger noise lets it move. That port's reset keeps the variance; here a reset takes all "
        "back. Its option op is the same as lp, and is not there. " + NOTE
    )
    memory: ClassVar[str] = (
        "two copies of what trains, and the activations of the images that count"
    )

    hidden_momentum: float = setting(
        0.99, "α: share of the old hidden copy, the source's being the rest", at_least=0, at_most=1
    )
    model_momentum: float = setting(
        0.99, "γ: share of the adapted weights after a step; 1: no filter", at_least=0, at_most=1
    )
    noise: float = setting(0.005, "q: Q = q · numbers that train / 38400", at_least=0)

    def settling(self, task: Task) -> list[Settle]:
        return [MomentumFilter(task.parameters, self)] if self.model_momentum != 1 else []

    def holds(self) -> Mapping[str, str]:
        pulls = {"ensemble": "model_momentum=1"} if self.model_momentum != 1 else {}
        return {**super().holds(), **pulls}
