"""While health is bad the source model answers, and the last healthy state is tried beside it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

OVERFLOW = (
    "logits of the source model, or of the state that is tried beside it, turned NaN or Inf. "
    "Nothing was changed."
)


class Fallback(nn.Module):
    """Whether the source model answers, and for how many estimates in a row the state that is tried
    beside it has been as good. When `enough` are, the adapter answers again; each time
    doubles that, since a return that was too early costs what it takes to notice."""

    FIRST, MOST = 8, 512

    active: Tensor
    good: Tensor
    enough: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("active", torch.zeros((), dtype=torch.bool))
        self.register_buffer("good", torch.zeros((), dtype=torch.int64))
        self.register_buffer("enough", torch.tensor(self.FIRST))

    def start(self) -> None:
        self.active.fill_(True)
        self.good.zero_()

    def forward(self, as_good: bool) -> bool:
        """Take in whether the state that is tried was as good; True when that is enough."""
        self.good.copy_((self.good + 1) * as_good)
        over = int(self.good) >= int(self.enough)
        if over:
            self.active.fill_(False)
            self.good.zero_()
            self.enough.mul_(2).clamp_max_(self.MOST)
        return over
