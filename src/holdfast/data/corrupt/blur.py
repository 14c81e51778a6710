"""Blur: defocus, glass, motion, zoom."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from holdfast.data.corrupt.dice import Dice
from holdfast.data.corrupt.filters import convolve, gaussian, smear, zoom


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
