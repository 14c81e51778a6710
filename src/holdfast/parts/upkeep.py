"""What follows a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from holdfast.parts.learn import Proposal
from holdfast.parts.teacher import Teacher

if TYPE_CHECKING:
    from holdfast.engine.adapter import Adapter


class Upkeep(nn.Module, ABC):
    """Called after every batch that went through, or after every step. Its buffers are its state.

    It is given the adapter and what the batch led to.
    """

    after: Literal["batch", "step"] = "step"

    @abstractmethod
    def forward(self, adapter: Adapter, proposal: Proposal) -> None: ...


class ResetEvery(Upkeep):
    """Go back to the source after every so many batches."""

    after = "batch"
    batches: Tensor

    def __init__(self, every: int):
        super().__init__()
        self.every = every
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, adapter: Adapter, proposal: Proposal) -> None:
        self.batches += 1
        if self.batches >= self.every:
            self.batches.zero_()
            adapter.forget()


class MeanTeacher(Upkeep):
    """The teacher follows the student."""

    def __init__(self, teacher: Teacher, momentum: float):
        super().__init__()
        self.teacher = teacher
        self.momentum = momentum

    def forward(self, adapter: Adapter, proposal: Proposal) -> None:
        self.teacher.follow(self.momentum)
