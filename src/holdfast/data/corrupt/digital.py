"""Digital: contrast, elastic transform, pixelate, JPEG."""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from holdfast.data.corrupt.dice import Dice
from holdfast.data.corrupt.filters import gaussian


def contrast(images: Tensor, dice: Dice, factor: float) -> Tensor:
    mean = images.mean((2, 3), keepdim=True)
    return mean.lerp(images, factor)


def elastic_transform(
    images: Tensor, dice: Dice, strength: float, smooth: float, skew: float
) -> Tensor:
    """A random affine map, then a smooth random displacement. Figures are parts of the side."""
    height, width = images.shape[-2:]
    side = min(height, width)
    corners = dice.uniform(3, 2).double() * (skew * side)
    images = affine(images, corners)
    if strength == 0:
        return images
    shifts = dice.uniform(2, height, width).to(images.device)
    shifts = gaussian(shifts, smooth * side, "reflect", truncate=3).mul_(strength * side)
    return displace(images, shifts)


def affine(images: Tensor, moves: Tensor) -> Tensor:
    """Three points around the middle move by (x, y) each, and the image follows."""
    height, width = images.shape[-2:]
    third = min(height, width) // 3
    middle = torch.tensor([width // 2, height // 2], dtype=torch.float64)
    around = torch.tensor([[1, 1], [1, -1], [-1, -1]], dtype=torch.float64) * third
    before = middle + around
    after = F.pad(before + moves, (0, 1), value=1)
    back = torch.linalg.solve(after, before.expand_as(moves)).float().to(images.device)
    y = torch.arange(height, device=images.device, dtype=torch.float32)
    x = torch.arange(width, device=images.device, dtype=torch.float32)
    # x' = x · back[0] + y · back[1] + back[2], in units where the outer pixels' centres are ±1.
    unit = 2 / torch.tensor([width - 1, height - 1], device=images.device)
    back = back * unit
    rows = y[:, None] * back[:, None, 1] + (back[:, None, 2] - 1)
    grid = rows[:, :, None] + x[:, None] * back[:, None, None, 0]
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=True)


def displace(images: Tensor, shifts: Tensor) -> Tensor:
    """Each pixel is read at its place plus a shift (x, y), mirrored at the image's edges."""
    height, width = images.shape[-2:]
    # In units where the image's edges are ±1.
    y = (2 * torch.arange(height, device=images.device) + 1) / height - 1
    x = (2 * torch.arange(width, device=images.device) + 1) / width - 1
    x, y = shifts[:, 0] * (2 / width) + x, shifts[:, 1] * (2 / height) + y[:, None]
    grid = torch.stack((x, y), -1)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def pixelate(images: Tensor, dice: Dice, scale: float) -> Tensor:
    """Shrunk by box averages, rounded to 8 bits on the way as pillow does, and enlarged again."""
    height, width = images.shape[-2:]
    across, column = (part.to(images.device) for part in _boxes(width, scale))
    down, row = (part.to(images.device) for part in _boxes(height, scale))
    small = _rounded(images @ across.T)
    small = _rounded(down @ small)
    return small.index_select(-1, column).index_select(-2, row)


def _rounded(images: Tensor) -> Tensor:
    return images.mul_(255).add_(0.5 + 1e-3).floor_().div_(255)


@lru_cache(maxsize=64)
def _boxes(side: int, scale: float) -> tuple[Tensor, Tensor]:
    """The matrix that shrinks a line, and for each of its pixels the box that covers it.

    Sums are taken in pillow's order: where a pixel's centre is on the edge of two boxes, rounding
    decides.
    """
    boxes = int(side * scale)
    size = side / boxes
    middle = ((np.arange(boxes) + 0.5) * size)[:, None]
    first, last = np.floor(middle - size / 2 + 0.5), np.floor(middle + size / 2 + 0.5)
    pixels = np.arange(side)
    place = (pixels - middle + 0.5) * (1 / size)
    inside = (pixels >= first) & (pixels < last) & (place > -0.5) & (place <= 0.5)
    matrix = inside / inside.sum(1, keepdims=True)
    cover = np.floor(np.cumsum(np.r_[0.5 * boxes / side, np.full(side - 1, boxes / side)]))
    return torch.from_numpy(matrix).float(), torch.from_numpy(cover.astype(int))


def jpeg_compression(images: Tensor, dice: Dice, quality: int) -> Tensor:
    """Through a JPEG file in memory; on the CPU, whatever the device."""
    pixels = images.mul(255).round_().byte().permute(0, 2, 3, 1).contiguous().cpu().numpy()
    for picture in pixels if pixels.shape[-1] == 3 else pixels[..., 0]:
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "JPEG", quality=quality)
        picture[:] = Image.open(file, formats=["JPEG"])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).to(images).div_(255)
