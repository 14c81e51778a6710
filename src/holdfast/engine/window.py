"""The latest images of a stream, over which a method looks where its batches are small."""

from __future__ import annotations

import torch
from torch import Tensor


class Window:
    """Holds up to `size` − 1 images, for the next batch to come after; without a size, nothing."""

    def __init__(self, size: int | None):
        self.size = size
        self.images: Tensor | None = None

    def join(self, batch: Tensor) -> Tensor:
        """What is looked at: the batch, after as many of the images held as there is room for."""
        if self.size is None or self.images is None:
            return batch
        if self.images.shape[1:] != batch.shape[1:]:
            raise ValueError(
                f"The window holds images of shape {tuple(self.images.shape[1:])}, this one is "
                f"{tuple(batch.shape[1:])}: keep one size, or reset() first."
            )
        return torch.cat([self.images, batch])[-max(self.size, len(batch)) :]

    def after(self, joined: Tensor) -> Tensor | None:
        """What it will hold; a copy, since a model may write into its input."""
        return None if self.size is None else joined[1 - self.size :].clone()
