"""ensemble: after every step, weights go a little way back to the source's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from holdfast import Method, register, setting
from holdfast.parts import Settle, Task


class SourcePull(Settle):
    """θ ← m θ + (1 − m) θ0 for all that trains in the network; θ0: as it is now."""

    def __init__(self, parameters: Iterable[nn.Parameter], momentum: float):
        super().__init__()
        # Themselves, not their data, which another memory format puts elsewhere.
        self.weights = list(parameters)
        self.source = [weight.detach().clone() for weight in self.weights]
        self.momentum = momentum

    @torch.no_grad()
    def forward(self) -> None:
        torch._foreach_lerp_([*self.weights], self.source, 1 - self.momentum)


@register("ensemble")
@dataclass(frozen=True)
class Ensemble(Method):
    """Pulls what trains towards the source model's weights after each step, before a teacher
    follows.

    θ ← m θ + (1 − m) θ0, m = source_momentum
    """

    paper: ClassVar[str] = (
        "Marsden, Döbler, Yang 2024, Universal test-time adaptation through weight ensembling, "
        "diversity weighting, and prior correction, arXiv 2306.00650"
    )
    note: ClassVar[str] = (
        "ROID's weight ensembling, by itself. The optimiser keeps its state; what a method trains "
        "beside the network, such as a projector, is not pulled. With a host that takes several "
        "steps in a batch, it follows each. Published with ROID only."
    )
    memory: ClassVar[str] = "a copy of what trains"
    plugin: ClassVar[bool] = True
    groups: ClassVar[bool] = True
    standalone: ClassVar[bool] = False
    needs_host: ClassVar[bool] = True
    neutral: ClassVar = {"source_momentum": 1.0}

    source_momentum: float = setting(
        0.99, "share of the adapted weights; 1: none of the source's", at_least=0, at_most=1
    )

    def settling(self, task: Task) -> list[Settle]:
        if self.source_momentum == 1:
            return []
        return [SourcePull(task.parameters.values(), self.source_momentum)]
