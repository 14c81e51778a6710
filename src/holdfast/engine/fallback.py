"""While health is bad the source model answers, and the last healthy state is tried beside it."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Fallback(nn.Module):
    """Whether the source model answers, and for how many estimates in a row the state that is tried
    beside it has been as good."""

    # So many in a row, and the adapter answers again.
    ENOUGH = 8

    active: Tensor
    good: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("active", torch.zeros((), dtype=torch.bool))
        self.register_buffer("good", torch.zeros((), dtype=torch.int64))

    def start(self) -> None:
        self.active.fill_(True)
        self.good.zero_()

    def forward(self, as_good: bool) -> bool:
        """Take in whether the state that is tried was as good; True when that is enough."""
        self.good.copy_((self.good + 1) * as_good)
        over = int(self.good) >= self.ENOUGH
        if over:
            self.active.fill_(False)
            self.good.zero_()
        return over
