"""The latest rows of a stream, in buffers of a fixed shape."""

from __future__ import annotations

import torch
from torch import Tensor, nn

# By how many rows a ring may outgrow its size where its last batch is taken in whole.
SPARE = 1023


class Ring(nn.Module):
    """Rows of some columns, the newest `size` of them; new ones come in the oldest ones' place.

    held: how many rows there are. place: where the next one goes. Both on the processor, where they
    can be read without waiting for a device.
    lags: as AdaContrast's released code has it. The place is always one batch behind while rows are
    appended, so that the first batch to overwrite some overwrites the newest; and the batch with
    which `size` is reached is taken in whole.
    """

    held: Tensor
    place: Tensor

    def __init__(self, size: int, *like: Tensor, lags: bool = False):
        """like: for each column a row, or whatever has a row's shape."""
        super().__init__()
        self.size = size
        self.lags = lags
        rows = size + SPARE if lags else size
        self.columns = len(like)
        for number, row in enumerate(like):
            self.register_buffer(f"column{number}", row.new_zeros(rows, *row.shape))
        self.register_buffer("held", torch.zeros((), dtype=torch.int64))
        self.register_buffer("place", torch.zeros((), dtype=torch.int64))

    def rows(self) -> list[Tensor]:
        """What is held, by column."""
        return [self.get_buffer(f"column{n}")[: int(self.held)] for n in range(self.columns)]

    def check(self, count: int) -> None:
        """Whether so many rows can be taken in at once."""
        if self.lags and count > SPARE + 1:
            raise ValueError(
                f"ring=released takes in up to {SPARE + 1} images at once, not {count}: give "
                "smaller batches, or choose ring=oldest."
            )

    def places(self, count: int) -> Tensor:
        """The rows that so many new ones would take; if there is no room for all, for the last."""
        filled, start = int(self.held), int(self.place)
        if self.lags:
            appends = filled < self.size
            return (
                torch.arange(count) + filled if appends else (torch.arange(count) + start) % filled
            )
        first = max(count - self.size, 0)
        return torch.arange(start + first, start + count) % self.size

    @torch.no_grad()
    def write(self, *columns: Tensor) -> None:
        """Take in a row of each column, for every image."""
        count = len(columns[0])
        indices = self.places(count)
        for number, rows in enumerate(columns):
            buffer = self.get_buffer(f"column{number}")
            buffer[indices.to(buffer.device)] = rows[-len(indices) :].to(buffer)
        if self.lags:
            self.held += count if int(self.held) < self.size else 0
            self.place.copy_((self.place + count) % self.held)
        else:
            self.place.copy_((self.place + count) % self.size)
            self.held.copy_((self.held + count).clamp_max(self.size))
