"""Digital: contrast, saturation, elastic transform, pixelate, JPEG."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from holdfast.data.corrupt.blur import gaussian
from holdfast.data.corrupt.dice import Dice


def contrast(images: Tensor, dice: Dice, factor: float) -> Tensor:
    mean = images.mean((2, 3), keepdim=True)
    return mean.lerp(images, factor)


def saturate(images: Tensor, dice: Dice, factor: float, more: float) -> Tensor:
    """Times and plus on the saturation of HSV, which leaves value and hue: each channel's distance
    from the largest is scaled."""
    if images.shape[1] == 1:
        return images
    value, least = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    saturation = (value - least) / value
    scale = (saturation * factor + more).clamp_(0, 1) / saturation
    # Gray has no hue. The benchmark takes 0 for it, which is red.
    reddened = value * (1 - more * images.new_tensor([0, 1, 1]).view(3, 1, 1))
    return torch.where(value > least, value - (value - images) * scale, reddened)


def elastic_transform(
    images: Tensor, dice: Dice, strength: float, smooth: float, skew: float
) -> Tensor:
    """A random affine map, then a smooth random displacement. Lengths are parts of the side."""
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
    y, x = _steps(height, images.device), _steps(width, images.device)
    # x' = x · back[0] + y · back[1] + back[2], in units where the outer pixels' centres are ±1.
    unit = 2 / torch.tensor([width - 1, height - 1], device=images.device, dtype=torch.float32)
    back = back * unit
    rows = y[:, None] * back[:, None, 1] + (back[:, None, 2] - 1)
    grid = rows[:, :, None] + x[:, None] * back[:, None, None, 0]
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=True)


def _steps(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, device=device, dtype=torch.float32)


def displace(images: Tensor, shifts: Tensor) -> Tensor:
    """Each pixel is read at its place plus a shift (x, y), mirrored at the image's edges."""
    height, width = images.shape[-2:]
    # In units where the image's edges are ±1.
    y = _steps(height, images.device).mul_(2).add_(1).div_(height).sub_(1)
    x = _steps(width, images.device).mul_(2).add_(1).div_(width).sub_(1)
    x, y = shifts[:, 0] * (2 / width) + x, shifts[:, 1] * (2 / height) + y[:, None]
    grid = torch.stack((x, y), -1)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def pixelate(images: Tensor, dice: Dice, scale: float) -> Tensor:
    """Shrunk by box averages, and enlarged again; on 8 bits."""
    height, width = images.shape[-2:]
    small = int(width * scale), int(height * scale)

    def change(picture: Image.Image) -> Image.Image:
        shrunk = picture.resize(small, Image.Resampling.BOX)
        return shrunk.resize((width, height), Image.Resampling.NEAREST)

    return _by_pillow(images, change)


def jpeg_compression(images: Tensor, dice: Dice, quality: int) -> Tensor:
    """Through a JPEG file in memory; on 8 bits."""

    def change(picture: Image.Image) -> Image.Image:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality)
        return Image.open(file, formats=["JPEG"])

    return _by_pillow(images, change)


def _by_pillow(images: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Pillow's own result, one picture at a time, and on the CPU whatever the device."""
    pictures = images.permute(0, 2, 3, 1).contiguous().cpu().numpy()
    out = np.empty_like(pictures)
    # Pillow's gray pictures have no channel axis.
    channels = slice(None) if images.shape[1] == 3 else 0
    for picture, target in zip(pictures[..., channels], out[..., channels], strict=True):
        target[:] = change(Image.fromarray(picture))
    return torch.from_numpy(out).permute(0, 3, 1, 2).to(images.device)
