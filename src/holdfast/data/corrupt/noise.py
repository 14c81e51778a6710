"""Noise: gaussian, shot, impulse, speckle."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from holdfast.data.corrupt.dice import Dice


def gaussian_noise(images: Tensor, dice: Dice, sigma: float) -> Tensor:
    return dice.normal(*images.shape[1:]).to(images.device).mul_(sigma).add_(images)


def shot_noise(images: Tensor, dice: Dice, photons: float) -> Tensor:
    """Poisson counts of a light that gives `photons` at white, drawn by Walker's alias method.

    Images are read at 8 bits, so that there is one table for each of 256 brightnesses.
    """
    limit, alias = (table.to(images.device).view(-1) for table in _alias_tables(int(photons)))
    columns = len(limit) // 256
    # One draw in [0, columns): its whole part picks a column, its fraction one of two counts.
    draw = dice.uniform(*images.shape[1:]).to(images.device).add_(1).mul_(columns / 2)
    column = draw.int().clamp_(max=columns - 1)
    cell = images.mul(255).round_().int().mul_(columns).add_(column).view(-1)
    spill = draw.sub_(column).view(-1) >= limit.index_select(0, cell)
    count = torch.where(spill, alias.index_select(0, cell), column.view(-1))
    return count.view_as(images).div(photons)


@lru_cache(maxsize=16)
def _alias_tables(photons: int) -> tuple[Tensor, Tensor]:
    """For each brightness (row) and count (column): up to where the column keeps its own count,
    and the count that has the rest. Counts from `photons` on are all white, and share a column."""
    light = np.arange(256)[:, None] / 255 * photons
    counts = np.arange(photons)
    logs = np.cumsum(np.log(np.maximum(counts, 1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = np.exp(np.where(counts == 0, 0, counts * np.log(light)) - light - logs)
    chance = np.c_[chance, np.maximum(0, 1 - chance.sum(1))]
    share = chance * chance.shape[1]  # 1 is a full column
    limit, alias = np.ones_like(share), np.tile(np.arange(share.shape[1]), (256, 1))
    rows, open_ = np.arange(256), np.ones(share.shape, bool)
    for _ in range(share.shape[1] - 1):
        low = np.where(open_, share, np.inf).argmin(1)
        high = np.where(open_, share, -np.inf).argmax(1)
        limit[rows, low], alias[rows, low] = share[rows, low], high
        share[rows, high] -= 1 - share[rows, low]
        open_[rows, low] = False
        limit[rows, high] = 1
    return torch.from_numpy(limit).float(), torch.from_numpy(alias).int()


def impulse_noise(images: Tensor, dice: Dice, amount: float) -> Tensor:
    """Salt and pepper, on each channel by itself."""
    draws = dice.bits(*images.shape[1:]).to(images.device)
    half = int(amount * 2**31)
    return images.masked_fill(draws < half - 2**31, 0).masked_fill_(draws >= 2**31 - half, 1)


def speckle_noise(images: Tensor, dice: Dice, sigma: float) -> Tensor:
    """The brighter, the noisier."""
    return dice.normal(*images.shape[1:]).to(images.device).mul_(sigma).add_(1).mul_(images)
