"""Whether a method does what it is for."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Activity(nn.Module):
    """How often a method took the steps that it could have taken, of late.

    A filter that leaves out nearly every image stops a method without a word. Over the last
    hundred steps that were due, a share below 5 % means that it hardly acts.
    """

    OVER = 100
    HARDLY = 0.05

    taken: Tensor
    due: Tensor
    told: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("taken", torch.zeros(self.OVER, dtype=torch.bool))
        self.register_buffer("due", torch.zeros((), dtype=torch.int64))
        self.register_buffer("told", torch.zeros((), dtype=torch.bool))

    def forward(self, taken: bool) -> bool:
        """Take in a step that was due; True once, when it is seen that the method hardly acts."""
        self.taken[int(self.due) % self.OVER] = taken
        self.due += 1
        news = self.hardly_acts and not bool(self.told)
        self.told |= news
        return news

    @property
    def rate(self) -> float | None:
        """The share of the last hundred; None before the first."""
        count = min(int(self.due), self.OVER)
        return float(self.taken[:count].float().mean()) if count else None

    @property
    def hardly_acts(self) -> bool:
        rate = self.rate
        return rate is not None and int(self.due) >= self.OVER and rate < self.HARDLY
