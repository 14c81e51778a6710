"""DeYO's destroyed copies: what an object looks like is kept in parts, its shape is not."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.parts.augment.base import FIXED, Augmentation

SIDE = 4  # patches along each side


def patch(images: Tensor) -> Tensor:
    """Cuts each image into 4×4 patches and shuffles them, by a permutation of its own. Sides that
    4 does not divide are made smaller, and then as they were."""
    height, width = _sides(images, "patch", SIDE)
    tall, wide = height // SIDE, width // SIDE
    whole = _resized(images, tall * SIDE, wide * SIDE)
    patches = whole.reshape(len(images), -1, SIDE, tall, SIDE, wide)
    patches = patches.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    order = torch.rand(len(images), SIDE * SIDE, dtype=torch.float64, device="cpu").argsort(1)
    image = torch.arange(len(images), device=images.device)[:, None]
    shuffled = patches[image, order.to(images.device)].reshape(-1, SIDE, SIDE, *patches.shape[2:])
    back = shuffled.permute(0, 3, 1, 4, 2, 5).reshape(whole.shape)
    return _resized(back, height, width)


def pixel(images: Tensor) -> Tensor:
    """Shuffles the pixels, channels together, by one permutation for the whole batch."""
    height, width = _sides(images, "pixel", 1)
    order = torch.randperm(height * width, device="cpu").to(images.device)
    return images.flatten(2)[:, :, order].reshape(images.shape)


def occlude(size: int = 0, row: int = -1, column: int = -1) -> Augmentation:
    """Fills a square with each image's own channel means.

    size: its side in pixels; 0: half the image's shorter one.
    row, column: of its corner; -1: at a quarter of the height or width.
    """

    def make(images: Tensor, _: int) -> Tensor:
        height, width = _sides(images, "occlude", 1)
        side = size or min(height, width) // 2
        top = height // 4 if row < 0 else row
        left = width // 4 if column < 0 else column
        if top + side > height or left + side > width:
            raise ValueError(
                f"A square of size={side} at row={top}, column={left} does not lie within images "
                f"of {height}×{width} pixels: choose a smaller one, or leave all three out."
            )
        view = images.clone()
        mean = images.mean((-2, -1), keepdim=True)
        view[..., top : top + side, left : left + side] = mean
        return view

    return Augmentation("occlude", make, random=False)


def _sides(images: Tensor, name: str, least: int) -> tuple[int, int]:
    if images.ndim != 4 or min(images.shape[-2:]) < least:
        raise ValueError(
            f"augment={name} works on images (batch, channels, height, width) of at least "
            f"{least}×{least} pixels, not on {tuple(images.shape)}: choose augment=flip."
        )
    return images.shape[-2], images.shape[-1]


def _resized(images: Tensor, height: int, width: int) -> Tensor:
    if images.shape[-2:] == (height, width):
        return images
    return F.interpolate(images, (height, width), mode="bilinear", antialias=True)


# They only move pixels, so that they take any channels in any range. `occlude` has settings.
DESTROYED = {
    kind.name: kind
    for kind in (
        Augmentation("patch", lambda images, _: patch(images)),
        Augmentation("pixel", lambda images, _: pixel(images)),
        *FIXED,
    )
}
