"""Random numbers that belong to an image, not to the batch it comes in."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


class Dice:
    """Draws for a batch, each image's from a stream of its own.

    Philox is counter-based: a stream is a key, and a place in it is a counter. The key says
    (seed, corruption, severity, image index), the counter how many draws came before, so that
    nothing depends on what else is in the batch. Bits are drawn on the CPU, and only bits: what
    NumPy makes of them may change between its versions.
    """

    def __init__(self, seed: int, corruption: str, severity: int, indices: Sequence[int]):
        text = f"{seed} {corruption} {severity}".encode()
        self._set = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        self._indices = [index % 2**64 for index in indices]
        self._philox = np.random.Philox(0)
        self._draws = 0

    def uniform(self, *shape: int) -> Tensor:
        """Numbers in [-1, 1), (images, *shape)."""
        # As many bits as a float holds, whatever torch's default type is.
        return (self.bits(*shape) >> 8).float().mul_(2.0**-23)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers, (images, *shape), in pairs after Box and Muller."""
        pairs = math.ceil(math.prod(shape) / 2)
        angle, depth = (self.uniform(2, pairs) * math.pi).unbind(1)
        # From (-π, π] to (0, 1]: the logarithm of 0 is no number.
        radius = depth.mul_(-0.5 / math.pi).add_(0.5).clamp_(min=2.0**-25).log_().mul_(-2).sqrt_()
        both = torch.cat((radius * angle.cos(), radius * angle.sin()), 1)
        return both[:, : math.prod(shape)].reshape(-1, *shape)

    def whole(self, below: int, *shape: int) -> Tensor:
        """Whole numbers 0 … below - 1 for `below` up to 2¹⁵, (images, *shape)."""
        count = math.prod(shape)
        halves = self.bits(math.ceil(count / 2)).view(torch.int16)[:, :count]
        return halves.int().add_(2**15).mul_(below).bitwise_right_shift_(16).view(-1, *shape)

    def bits(self, *shape: int) -> Tensor:
        """Whole numbers of 32 bits with sign, (images, *shape)."""
        words = math.ceil(math.prod(shape) / 2)
        rows = np.empty((len(self._indices), words), np.uint64)
        state = self._philox.state
        state["state"]["counter"][:] = (0, 0, 0, self._draws)
        state["buffer_pos"] = 4  # nothing left over from another image
        for row, index in enumerate(self._indices):
            state["state"]["key"][:] = (index, self._set)
            self._philox.state = state
            rows[row] = self._philox.random_raw(words)
        self._draws += 1
        # Little end first, wherever this runs.
        halves = torch.from_numpy(rows.astype("<u8", copy=False).view("<i4"))
        return halves[:, : math.prod(shape)].reshape(-1, *shape)
