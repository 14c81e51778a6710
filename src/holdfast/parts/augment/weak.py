"""A weak view: each image flipped, or not."""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.parts.augment.base import Augmentation


def flipped(images: Tensor) -> Tensor:
    """Each image left to right, or not; drawn from torch's global generator, on the CPU."""
    flip = (torch.rand(len(images)) < 0.5).to(images.device)
    return torch.where(flip.view(-1, *[1] * (images.ndim - 1)), images.flip(-1), images)


WEAK = Augmentation("weak", lambda images, _: flipped(images))
