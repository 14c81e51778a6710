"""Linear filters, for whole batches at once."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Border = Literal["reflect", "nearest"]


def gaussian(images: Tensor, sigma: float, border: Border, truncate: float) -> Tensor:
    """Gaussian blur, cut off at `truncate` sigmas.

    As two matrix products: exact at the borders whatever the width, and faster than convolution.
    """
    height, width = images.shape[-2:]
    down = _gaussian_matrix(height, sigma, border, truncate).to(images.device)
    across = _gaussian_matrix(width, sigma, border, truncate).to(images.device)
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
    return torch.from_numpy(matrix).float()


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
    places = ((down + top) * line + across + left).numpy()
    for weight, place in zip(weights.tolist(), places, strict=True):
        changes = (np.flatnonzero(np.diff(place)) + 1).tolist()
        for start, stop in pairwise([0, *changes, len(place)]):
            y, x = divmod(int(place[start]), line)
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
