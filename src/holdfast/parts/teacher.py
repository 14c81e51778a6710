"""The mean teacher: a copy of the network that follows it slowly."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from holdfast.engine.network import Network
from holdfast.engine.step import Step


class Teacher:
    """θ' ← m θ' + (1 − m) θ for all that trains; it is never trained itself."""

    def __init__(self, network: Network, student: Mapping[str, nn.Parameter]):
        self.network = network
        own = dict(network.model.named_parameters())
        self.parameters = {name: own[name] for name in student}
        self._student = list(student.values())

    def __call__(self, images: Tensor, *, record: bool = False) -> Tensor:
        """Its logits, without gradient."""
        return Step(self.network, images, record=record).logits

    def beside(self, step: Step, *, record: bool = False) -> Step:
        """The same batch through the teacher, without gradient."""
        return Step(self.network, step.images, record=record, newest=step.newest)

    @torch.no_grad()
    def follow(self, momentum: float) -> None:
        # One fused update, however many tensors there are.
        torch._foreach_lerp_([*self.parameters.values()], [*self._student], 1 - momentum)
