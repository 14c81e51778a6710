"""AugMix's view, drawn for each image: chains of mild operations, mixed with the image itself."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.parts.augment.base import Augmentation
from holdfast.parts.augment.weak import flipped

CHAINS = 3
LONGEST = 3  # operations in a chain, one at least
LEVELS = (0.1, 1.0)  # of ten
SMALL = 64  # pixels: up to this side, a crop is of the padded image, else it is a resized one
AREA = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
TRIES = 10


# Operations on 8-bit images as Pillow has them: (images, 3, height, width) of whole numbers from 0
# to 255, and a level from 0 to 10 for each image. One draw of signs decides left or right.


def autocontrast(images: Tensor, level: Tensor) -> Tensor:
    """Each channel's darkest pixel becomes 0, its brightest 255."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    scale = 255 / (high - low).clamp_min(1)
    # Pillow cuts, in double precision: what is a whole number but for rounding stays one.
    stretched = ((images - low) * scale + 1e-3).floor()
    return torch.where(high > low, stretched, images)


def equalize(images: Tensor, level: Tensor) -> Tensor:
    """Each channel's histogram is made flat."""
    flat = images.flatten(2).long()
    counts = torch.zeros(*flat.shape[:2], 256, dtype=torch.int64, device=flat.device)
    counts.scatter_add_(2, flat, torch.ones_like(flat))
    # Without the pixels of the brightest value there is.
    others = flat.shape[2] - counts.gather(2, flat.amax(2, keepdim=True))
    step = others // 255
    below = counts.cumsum(2) - counts
    table = ((below + step // 2) // step.clamp_min(1)).clamp_max(255)
    out = table.gather(2, flat).view_as(images).to(images)
    return torch.where((step > 0)[..., None], out, images)


def posterize(images: Tensor, level: Tensor) -> Tensor:
    """Only the highest bits stay: four, and fewer at levels that are not drawn here."""
    bits = 4 - _whole(level, 4)
    size = (2 ** (8 - bits)).view(-1, 1, 1, 1)
    return (images / size).floor() * size


def solarize(images: Tensor, level: Tensor) -> Tensor:
    """Pixels from a threshold on are inverted."""
    threshold = 256 - _whole(level, 256).view(-1, 1, 1, 1)
    return torch.where(images < threshold, images, 255 - images)


def _whole(level: Tensor, most: float) -> Tensor:
    """A whole number that grows with the level, and is `most` at 10."""
    return (level * (most / 10)).floor()


# Moves: where a pixel is taken from, x' = a x + b y + c, y' = d x + e y + f, from the corner.


def rotate(level: Tensor, height: int, width: int) -> Tensor:
    turn = torch.deg2rad(torch.copysign(_whole(level.abs(), 30), level))
    cos, sin = turn.cos(), turn.sin()
    x, y = width / 2, height / 2
    rows = (cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y)
    return torch.stack(rows, 1)


def shear_x(level: Tensor, height: int, width: int) -> Tensor:
    return _moved(level, b=0.03 * level)


def shear_y(level: Tensor, height: int, width: int) -> Tensor:
    return _moved(level, d=0.03 * level)


def translate_x(level: Tensor, height: int, width: int) -> Tensor:
    return _moved(level, c=torch.copysign(_whole(level.abs(), width / 3), level))


def translate_y(level: Tensor, height: int, width: int) -> Tensor:
    return _moved(level, f=torch.copysign(_whole(level.abs(), height / 3), level))


def _moved(like: Tensor, **other: Tensor) -> Tensor:
    ones, zeros = torch.ones_like(like), torch.zeros_like(like)
    still = {"a": ones, "b": zeros, "c": zeros, "d": zeros, "e": ones, "f": zeros}
    return torch.stack(list((still | other).values()), 1)


def affine(images: Tensor, matrix: Tensor) -> Tensor:
    """Pixels between others are interpolated, those from outside are black."""
    height, width = images.shape[-2:]
    x = torch.arange(width, device=images.device).to(matrix) + 0.5
    y = torch.arange(height, device=images.device).to(matrix)[:, None] + 0.5
    a, b, c, d, e, f = matrix.T[..., None, None]
    x, y = a * x + b * y + c, d * x + e * y + f
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    # Pillow cuts here, too.
    whole = (_sampled(images, x, y) + 1e-3).floor()
    return torch.where(inside[:, None], whole, torch.zeros_like(whole))


def _sampled(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The values of each image at these places, (images, rows, columns), from the corner."""
    height, width = images.shape[-2:]
    grid = torch.stack((x * (2 / width) - 1, y * (2 / height) - 1), -1).to(images)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


Colour = Callable[[Tensor, Tensor], Tensor]
Move = Callable[[Tensor, int, int], Tensor]
COLOURS: tuple[Colour, ...] = (autocontrast, equalize, posterize, solarize)
MOVES: tuple[Move, ...] = (rotate, shear_x, shear_y, translate_x, translate_y)
OPERATIONS = len(COLOURS) + len(MOVES)


def operate(images: Tensor, operation: Tensor, level: Tensor) -> Tensor:
    """On each image its operation, by number; below 0 none. The sign of a level is that of a move.
    What was drawn is on the CPU, so that choosing waits for no device."""
    out = images.clone()
    for number, colour in enumerate(COLOURS):
        chosen = (operation == number).nonzero().squeeze(1)
        if len(chosen):
            rows, amount = chosen.to(images.device), level[chosen].abs().to(images)
            out[rows] = colour(images[rows], amount)
    chosen = (operation >= len(COLOURS)).nonzero().squeeze(1)
    if len(chosen):
        rows = chosen.to(images.device)
        matrices = torch.stack([move(level[chosen], *images.shape[-2:]) for move in MOVES])
        picked = matrices[operation[chosen] - len(COLOURS), torch.arange(len(chosen))]
        out[rows] = affine(images[rows], picked.to(images))
    return out


def augmix(images: Tensor) -> Tensor:
    """Draws from torch's global generator, on the CPU; input and output in [0, 1].

    x₀: a random crop, perhaps flipped. Then (1 − m)·x₀ + m·Σ w c(x₀), over three chains c of one to
    three operations each; w is Dirichlet(1, 1, 1), m Beta(1, 1).
    """
    small = max(images.shape[-2:]) <= SMALL
    first = flipped(shifted(images) if small else resized(images))
    operation, level, weight, blend = drawn(len(images))
    chains = (255 * first).round().repeat_interleave(CHAINS, 0)
    for step in range(LONGEST):
        chains = operate(chains, operation[..., step].flatten(), level[..., step].flatten())
    chains = chains.view(-1, CHAINS, *images.shape[1:])
    mixed = torch.einsum("nkchw,nk->nchw", chains, (blend[:, None] * weight / 255).to(images))
    return mixed + (1 - blend).to(images).view(-1, 1, 1, 1) * first


def drawn(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each view: operations and levels, (views, chains, places), chains' weights, and m."""
    operation = torch.randint(OPERATIONS, (count, CHAINS, LONGEST))
    length = torch.randint(1, LONGEST + 1, (count, CHAINS, 1))
    operation = torch.where(torch.arange(LONGEST) < length, operation, -1)
    low, high = LEVELS
    level = low + (high - low) * torch.rand(operation.shape, dtype=torch.float64)
    level = torch.where(torch.rand(operation.shape) < 0.5, level, -level)
    # Exponentials, divided by their sum, are Dirichlet(1, 1, 1).
    share = -torch.rand(count, CHAINS, dtype=torch.float64).clamp_min(1e-300).log()
    return (
        operation,
        level,
        share / share.sum(1, keepdim=True),
        torch.rand(count, dtype=torch.float64),
    )


def shifted(images: Tensor) -> Tensor:
    """Each image moved by up to an eighth of its side, which leaves black behind."""
    count, (height, width) = len(images), images.shape[-2:]
    margins = height // 8, width // 8
    padded = F.pad(images, (margins[1], margins[1], margins[0], margins[0]))
    rows, columns = (
        torch.randint(2 * margin + 1, (count, 1)) + torch.arange(side)
        for margin, side in zip(margins, (height, width), strict=True)
    )
    index = (torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :])
    return padded.movedim(1, -1)[tuple(at.to(images.device) for at in index)].movedim(-1, 1)


def resized(images: Tensor) -> Tensor:
    """A part of each image, of 8 to 100 % of its area and nearly square, at the image's size."""
    count, (height, width) = len(images), images.shape[-2:]
    tall, wide = part(count, height, width)
    top, left = (
        (torch.rand(count) * (side - size + 1)).floor()
        for side, size in ((height, tall), (width, wide))
    )
    x, y = (
        # Pixels at the part's edge know nothing of those beyond.
        start[:, None]
        + ((torch.arange(side) + 0.5) * (size / side)[:, None])
        .clamp_min(0.5)
        .minimum(size[:, None] - 0.5)
        for start, size, side in ((left, wide, width), (top, tall, height))
    )
    x, y = (axis.to(images) for axis in (x, y))
    return _sampled(images, x[:, None].expand(-1, height, -1), y[:, :, None].expand(-1, -1, width))


def part(count: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Heights and widths of parts: the first of some tries that fits; else as much as there is."""
    low, high = AREA
    area = height * width * (low + (high - low) * torch.rand(TRIES, count, dtype=torch.float64))
    low, high = (math.log(bound) for bound in RATIO)
    ratio = (low + (high - low) * torch.rand(TRIES, count, dtype=torch.float64)).exp()
    tall, wide = (area / ratio).sqrt().round(), (area * ratio).sqrt().round()
    fits = (tall <= height) & (wide <= width) & (tall > 0) & (wide > 0)
    # The last resort, as if it were one more try.
    most = round(min(height, width / RATIO[0])), round(min(width, height * RATIO[1]))
    tall, wide = (
        torch.cat([sizes, torch.full((1, count), float(whole), dtype=torch.float64)])
        for sizes, whole in zip((tall, wide), most, strict=True)
    )
    first = torch.cat([fits, torch.ones(1, count, dtype=torch.bool)]).int().argmax(0)[None]
    return tall.gather(0, first)[0], wide.gather(0, first)[0]


# Hendrycks et al. 2020, at the lowest severity, as MEMO takes it.
AUGMIX = Augmentation("augmix", lambda images, _: augmix(images), colours=True)
