"""What follows a batch, when it has been answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from holdfast.engine.network import Network
from holdfast.engine.step import Step
from holdfast.parts.learn import Proposal


class Forget(Protocol):
    def __call__(self, *, optimizer: bool = True, keep: Collection[str] = ()) -> None:
        """Take back what was learnt: weights, but for those whose names are to keep; averages; the
        optimiser's state too if not told otherwise. Counters go on."""


@dataclass(frozen=True)
class Outcome:
    """What a batch led to, and a way back to the source."""

    step: Step
    proposal: Proposal
    forget: Forget


class Upkeep(nn.Module, ABC):
    """Called after every batch that went through, or after every step; its answer is made by
    then. Its buffers are its state."""

    after: Literal["batch", "step"] = "step"

    def before(self, step: Step) -> None:
        """Look at a batch before anything is learnt from it. What is found is kept by the step
        (`step.cached`), since nothing may change yet."""

    @abstractmethod
    def forward(self, outcome: Outcome) -> None: ...

    def told(self) -> Mapping[str, Any]:
        """What is to be said of the last batch, by the names of `Last`."""
        return {}


class ResetEvery(Upkeep):
    """Go back to the source after every so many batches."""

    after = "batch"
    batches: Tensor

    def __init__(self, every: int):
        super().__init__()
        self.every = every
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, outcome: Outcome) -> None:
        self.batches += 1
        if self.batches >= self.every:
            self.batches.zero_()
            outcome.forget()


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

    def beside(self, step: Step) -> Step:
        """The same batch through the teacher, without gradient."""
        return Step(self.network, step.images, newest=step.newest)

    @torch.no_grad()
    def follow(self, momentum: float) -> None:
        # One fused update, however many tensors there are.
        torch._foreach_lerp_([*self.parameters.values()], [*self._student], 1 - momentum)


class MeanTeacher(Upkeep):
    """The teacher follows the student."""

    def __init__(self, teacher: Teacher, momentum: float):
        super().__init__()
        self.teacher = teacher
        self.momentum = momentum

    def forward(self, outcome: Outcome) -> None:
        self.teacher.follow(self.momentum)
