"""Blur: defocus, glass, motion, zoom, gaussian; and linear filters, for whole batches at once."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.data.corrupt.dice import Dice

Border = Literal["reflect", "nearest"]


def defocus_blur(images: Tensor, dice: Dice, radius: float, alias: float) -> Tensor:
    return convolve(images, _disk(radius, alias))


@lru_cache(maxsize=16)
def _disk(radius: float, alias: float) -> Tensor:
    """A disk whose edge is softened by a small Gaussian of width `alias`."""
    reach, soft = (8, 1) if radius <= 8 else (int(radius), 2)
    steps = np.arange(-reach, reach + 1)
    disk = (steps[:, None] ** 2 + steps**2 <= radius**2).astype(float)
    weights = np.exp(-0.5 * (np.arange(-soft, soft + 1) / alias) ** 2)
    # The softening mirrors at the edge of the kernel's own array, as the benchmark's does.
    padded = np.pad(disk / disk.sum(), soft, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2 * soft + 1,) * 2)
    soft_disk = windows @ weights @ weights / weights.sum() ** 2
    used = np.abs(steps)[soft_disk.any(0)].max()
    trimmed = soft_disk[reach - used : reach + used + 1, reach - used : reach + used + 1]
    return torch.from_numpy(trimmed.copy()).float()


def glass_blur(images: Tensor, dice: Dice, sigma: float, reach: int, rounds: int) -> Tensor:
    """Blur, then have each pixel copy one near it, then blur again."""
    channels, height, width = images.shape[1:]
    pixels = gaussian(images, sigma, "nearest", truncate=4)
    pixels = pixels.mul_(255).add_(1e-3).floor_().div_(255).flatten(2)
    for _ in range(rounds):
        taken = _copied(dice, reach, height, width).to(images.device)
        pixels = pixels.gather(2, taken[:, None].expand(-1, channels, -1))
    return gaussian(pixels.view_as(images), sigma, "nearest", truncate=4)


def _copied(dice: Dice, reach: int, height: int, width: int) -> Tensor:
    """From which place each pixel's value comes, (images, height · width).

    The benchmark goes through the pixels one by one, last to first. Each copies the value that a
    pixel at an offset in [-reach, reach - 1] has by then: its old value if that pixel's turn is
    yet to come, else what that pixel has copied itself. So a pixel points at an old value, or at
    a pixel whose turn came before. Following all pointers at once, twice as far each time, ends
    after a few rounds.
    """
    places = torch.arange(height * width, dtype=torch.int32).view(1, height, width)
    down, across = (slice(reach + 1, side - reach + 1) for side in (height, width))
    walked = places[:, down, across]
    offsets = dice.whole(2 * reach, 2, *walked.shape[1:]).sub_(reach)
    goal = offsets[:, 0].mul_(width).add_(offsets[:, 1]).add_(walked)
    taken = places.repeat(len(goal), 1, 1)
    taken[:, down, across] = goal
    if reach == 1:  # offsets -1 and 0 meet no pixel that has had its turn
        return taken.flatten(1).long()

    had_turn = torch.zeros_like(places, dtype=torch.bool)
    had_turn[:, down, across] = True
    pointer = places.repeat(len(goal), 1, 1)  # a pixel that copies an old value points at itself
    again = (goal > walked) & had_turn.view(-1)[goal]
    pointer[:, down, across] = torch.where(again, goal, walked)
    taken, pointer = taken.flatten(1).long(), pointer.flatten(1).long()
    while True:
        further = pointer.gather(1, pointer)
        if torch.equal(further, pointer):
            return taken.gather(1, pointer)
        pointer = further


def motion_blur(images: Tensor, dice: Dice, radius: int, sigma: float) -> Tensor:
    return smear(images, radius, sigma, dice.uniform(1)[:, 0] * 45)


def zoom_blur(images: Tensor, dice: Dice, stop: float, step: float) -> Tensor:
    """The mean of the images and of enlargements of their middle."""
    factors = np.arange(1, stop, step).tolist()
    images = images.contiguous(memory_format=torch.channels_last)
    out = images.clone()
    for factor in factors:
        out += zoom(images, factor)
    return out / (len(factors) + 1)


def gaussian_blur(images: Tensor, dice: Dice, sigma: float) -> Tensor:
    return gaussian(images, sigma, "nearest", truncate=4)


def gaussian(images: Tensor, sigma: float, border: Border, truncate: float) -> Tensor:
    """Gaussian blur, cut off at `truncate` sigmas.

    As two matrix products: exact at the borders whatever the width, and faster than convolution.
    """
    height, width = images.shape[-2:]
    down = _gaussian_matrix(height, sigma, border, truncate).to(images)
    across = _gaussian_matrix(width, sigma, border, truncate).to(images)
    return down @ images @ across.T


@lru_cache(maxsize=64)
def _gaussian_matrix(side: int, sigma: float, border: Border, truncate: float) -> Tensor:
    radius = int(truncate * sigma + 0.5)
    steps = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 * (steps / sigma) ** 2)
    taken = np.arange(side)[:, None] + steps
    if border == "nearest":
        taken = taken.clip(0, side - 1)
    else:  # … c b a | a b c … , again and again where the kernel is wider than the image
        taken = taken % (2 * side)
        taken = np.where(taken < side, taken, 2 * side - 1 - taken)
    matrix = np.zeros((side, side))
    np.add.at(matrix, (np.arange(side)[:, None], taken), weights / weights.sum())
    return torch.from_numpy(matrix)


def convolve(images: Tensor, kernel: Tensor) -> Tensor:
    """Correlation with a kernel of odd sides, mirrored at the centre of border pixels."""
    height, width = images.shape[-2:]
    tall, wide = kernel.shape
    padded = F.pad(images, (wide // 2, wide // 2, tall // 2, tall // 2), mode="reflect")
    # Transforms are slow on lengths with a large prime factor; what wraps around is not read.
    sides = [16 * math.ceil(side / 16) for side in padded.shape[-2:]]
    spectrum = torch.fft.rfft2(padded, s=sides)
    spectrum *= torch.fft.rfft2(kernel.to(images), s=sides).conj()
    blurred: Tensor = torch.fft.irfft2(spectrum, s=sides)
    return blurred[..., :height, :width]


def smear(images: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """Motion blur: a one-sided Gaussian of 2 · radius + 1 taps along each image's own direction.

    Borders are repeated. As in ImageMagick, taps lie on whole pixels, so that images of similar
    angles share many: sorted by angle, those that do are neighbours, and shift as one.
    """
    steps = torch.arange(2 * radius + 1, dtype=torch.float32)
    weights = torch.exp(-0.5 * (steps / sigma) ** 2)
    weights = (weights / weights.sum())[weights > 1e-6]
    angles, order = degrees.double().deg2rad().sort()
    taps = torch.arange(len(weights), dtype=torch.float64)[:, None]
    down = torch.ceil(taps * angles.sin() - 0.5).long()
    across = torch.ceil(taps * angles.cos() - 0.5).long()

    height, width = images.shape[-2:]
    top, bottom = int(-down.min()), int(down.max())
    left, right = int(-across.min()), int(across.max())
    order = order.to(images.device)
    padded = F.pad(images[order], (left, right, top, bottom), mode="replicate")
    sums = torch.zeros_like(images)
    line = padded.shape[-1]
    offsets = ((down + top) * line + across + left).numpy()
    for weight, offset in zip(weights.tolist(), offsets, strict=True):
        changes = (np.flatnonzero(np.diff(offset)) + 1).tolist()
        for start, stop in pairwise([0, *changes, len(offset)]):
            y, x = divmod(int(offset[start]), line)
            shifted = padded[start:stop, :, y : y + height, x : x + width]
            sums[start:stop].add_(shifted, alpha=weight)
    out = torch.empty_like(images)
    out[order] = sums
    return out


def zoom(images: Tensor, factor: float) -> Tensor:
    """The middle of the images, enlarged to their size."""
    height, width = images.shape[-2:]
    inner = [math.ceil(side / factor) for side in (height, width)]
    y, x = (height - inner[0]) // 2, (width - inner[1]) // 2
    middle = images[..., y : y + inner[0], x : x + inner[1]]
    size = [round(side * factor) for side in inner]
    large = F.interpolate(middle, size=size, mode="bilinear", align_corners=True)
    y, x = (size[0] - height) // 2, (size[1] - width) // 2
    return large[..., y : y + height, x : x + width]
