"""What follows a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from holdfast.adapter import Adapter


class Upkeep(nn.Module, ABC):
    """Called after every batch that went through. Its buffers are its state."""

    @abstractmethod
    def forward(self, adapter: Adapter) -> None: ...


class ResetEvery(Upkeep):
    """Go back to the source after every so many batches."""

    batches: Tensor

    def __init__(self, every: int):
        super().__init__()
        self.every = every
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, adapter: Adapter) -> None:
        self.batches += 1
        if self.batches >= self.every:
            self.batches.zero_()
            adapter.forget()
