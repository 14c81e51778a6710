"""Spatter: drops of water, or of mud.

Water needs what the benchmark takes from OpenCV: edges, distances to them, a histogram made even.
Here they are for whole batches at once, on whole numbers, so that they are the same everywhere.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.data.corrupt.blur import gaussian
from holdfast.data.corrupt.dice import Dice
from holdfast.data.corrupt.weather import gray

WATER = (175, 238, 238)
MUD = (63, 42, 20)
# An edge begins above the second, and goes on above the first: sums of two slopes, as Sobel has it.
EDGE = (50, 150)
# Distances count in 1 / PIXEL of a pixel, as lengths of steps: along, across a corner, two along
# and one aside. They are cut where they are FARTHEST.
PIXEL = 10_000
ALONG, ACROSS, ASIDE = 10_000, 14_000, 21_969
FARTHEST = 20 * PIXEL


def spatter(
    images: Tensor,
    dice: Dice,
    mean: float,
    spread: float,
    sigma: float,
    least: float,
    strength: float,
    mud: float,
) -> Tensor:
    """Drops are where smooth noise is high; `strength` is how much water shines, or how far the
    edge of mud is blurred."""
    # On the CPU in 64 bits: what a drop is may depend neither on rounding nor on the device.
    field = dice.normal(1, *images.shape[-2:]).double().mul_(spread).add_(mean)
    field = gaussian(field, sigma, "nearest", truncate=4)
    field = field.where(field >= least, 0)
    if mud:
        thick = gaussian((field > least).to(images), strength, "nearest", truncate=4)
        thick = thick.where(thick >= 0.8, 0)
        return images.lerp(_colour(MUD, images), thick)
    bright = field.mul(255).clamp_(max=255).byte().to(images.device)
    shine = bright * _relief(bright).to(images)
    most = shine.amax((2, 3), keepdim=True)
    # No drop, no water: the benchmark would divide by 0.
    return images + shine * (strength / most.clamp(min=1)) * _colour(WATER, images)


def _colour(rgb: tuple[int, int, int], images: Tensor) -> Tensor:
    colour = images.new_tensor(rgb).div_(255).view(1, 3, 1, 1)
    return colour if images.shape[1] == 3 else gray(colour)


def _relief(field: Tensor) -> Tensor:
    """Light that falls aslant on drops which rise from their edges, 0 to 255."""
    height = _nine(distances(find_edges(field))) // (9 * PIXEL)
    kernel = field.new_tensor([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], dtype=torch.float32)
    mirrored = F.pad(equalize(height.byte()).float(), (1, 1, 1, 1), mode="reflect")
    lit = F.conv2d(mirrored, kernel.view(1, 1, 3, 3)).clamp_(0, 255).int()
    return (_nine(lit) + 4) // 9


def find_edges(field: Tensor) -> Tensor:
    """Canny's edges of bytes, (images, 1, height, width)."""
    padded = F.pad(field.float(), (1, 1, 1, 1), mode="replicate").int()
    smooth_down = padded[..., :-2, :] + 2 * padded[..., 1:-1, :] + padded[..., 2:, :]
    smooth_across = padded[..., :-2] + 2 * padded[..., 1:-1] + padded[..., 2:]
    across = smooth_down[..., 2:] - smooth_down[..., :-2]
    down = smooth_across[..., 2:, :] - smooth_across[..., :-2, :]
    slope = across.abs() + down.abs()
    around = F.pad(slope, (1, 1, 1, 1))

    def beside(y: int, x: int) -> Tensor:
        height, width = slope.shape[-2:]
        return around[..., 1 + y : 1 + y + height, 1 + x : 1 + x + width]

    # The steepest along the slope's own direction, which is one of four: tangents of 22.5° and
    # 67.5° in 1 / 2¹⁵.
    flat = across.abs().long() * 13573
    steep = flat + (across.abs().long() << 16)
    rise = down.abs().long() << 15
    same_sign = (across ^ down) >= 0
    level = (slope > beside(0, -1)) & (slope >= beside(0, 1))
    upright = (slope > beside(-1, 0)) & (slope >= beside(1, 0))
    falling = (slope > beside(-1, -1)) & (slope > beside(1, 1))
    rising = (slope > beside(-1, 1)) & (slope > beside(1, -1))
    aslant = torch.where(same_sign, falling, rising)
    crest = torch.where(rise < flat, level, torch.where(rise > steep, upright, aslant))

    weak, strong = crest & (slope > EDGE[0]), crest & (slope > EDGE[1])
    while True:  # from each edge on to what touches it
        touched = F.max_pool2d(strong.float(), 3, 1, 1).bool() & weak
        if torch.equal(touched, strong):
            return strong
        strong = touched


def distances(edges: Tensor) -> Tensor:
    """To the nearest edge by steps to the 16 pixels around, at most FARTHEST."""
    height, width = edges.shape[-2:]
    far = torch.where(edges, 0, FARTHEST).int()
    while True:
        padded = F.pad(far, (2, 2, 2, 2), value=FARTHEST)
        nearer = far
        for y, x, length in _STEPS:
            start = padded[..., 2 + y : 2 + y + height, 2 + x : 2 + x + width]
            nearer = torch.minimum(nearer, start + length)
        if torch.equal(nearer, far):
            return far
        far = nearer


_LENGTHS = {(0, 1): ALONG, (1, 1): ACROSS, (1, 2): ASIDE}
_STEPS = [
    (y, x, _LENGTHS[low, high])
    for y in range(-2, 3)
    for x in range(-2, 3)
    for low, high in [sorted((abs(y), abs(x)))]
    if (low, high) in _LENGTHS
]


def _nine(values: Tensor) -> Tensor:
    """Sums over 3×3 pixels of whole numbers, mirrored at the centre of border pixels."""
    padded = F.pad(values.float(), (1, 1, 1, 1), mode="reflect").to(values.dtype)
    three = padded[..., :-2, :] + padded[..., 1:-1, :] + padded[..., 2:, :]
    return three[..., :-2] + three[..., 1:-1] + three[..., 2:]


def equalize(values: Tensor) -> Tensor:
    """Bytes spread from 0 to 255, so that each is as frequent; an image of one value stays."""
    flat = values.flatten(1).long()
    counts = flat.new_zeros(len(flat), 256).scatter_add_(1, flat, torch.ones_like(flat))
    lowest = flat.amin(1, keepdim=True)
    first = counts.gather(1, lowest)
    above = counts.cumsum(1) - first
    above_first = (flat.shape[1] - first).clamp(min=1)
    # One division, then one product, as OpenCV rounds: halves are frequent.
    scale = torch.full_like(above_first, 255, dtype=torch.float32) / above_first
    spread = (above * scale).round_().clamp_(0, 255).byte()
    even = spread.gather(1, flat)
    return torch.where(first == flat.shape[1], values.flatten(1), even).view_as(values)
