"""glyphs-c: an embedded benchmark that needs no download.

32×32 colour images of 50 characters, in 24 fonts, in any pose, on textured grounds, with other
characters at their sides; a small BatchNorm ResNet trained on them; and the corruption maker for
the rest. Every number that an image needs is a hash of (seed, split, image index, position), and
all arithmetic is on integers, so an image is the same on every machine and in any batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from holdfast.data.images import Images, as_floats
from holdfast.data.pools import Made
from holdfast.models.glyphs import model as model
from holdfast.util.words import listed

CLASSES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ23456789abdefghnqrt&@#%?"
SIDE = 32
SIZES = {"train": 50_000, "test": 10_000}

_LATTICE = 7
_GAMMA = 0x9E3779B97F4A7C15  # SplitMix64 (Steele et al. 2014): its k-th number is mix(seed + kγ)


def labels(split: str, indices: Tensor) -> Tensor:
    """Which of `CLASSES` an image shows: any 50 in a row show each once."""
    _check(split, indices)
    return indices % len(CLASSES)


def images(split: str, indices: Tensor, *, seed: int = 0) -> Tensor:
    """Float images in [0, 1], (N, 3, 32, 32). There are as many as you ask for: `SIZES` are what
    the benchmark takes. Another seed is another set of the same kind."""
    return as_floats(compose(indices, labels(split, indices), split, seed))


def _check(split: str, indices: Tensor) -> None:
    if split not in SIZES:
        raise ValueError(f"glyphs-c has no split {split!r}: it has {listed(SIZES)}.")
    if indices.ndim != 1 or indices.is_floating_point() or (len(indices) and indices.min() < 0):
        raise ValueError(
            "glyphs-c is asked for images by a vector of whole numbers from 0 on, not by "
            f"{indices.dtype} of shape {tuple(indices.shape)}."
        )


class Glyphs(Images):
    """A split as a data set."""

    classes = len(CLASSES)
    names = tuple(CLASSES)

    def __init__(self, split: str = "test", size: int | None = None, *, seed: int = 0):
        self.split = split
        self.seed = seed
        size = SIZES.get(split, 0) if size is None else size
        self.labels = labels(split, torch.arange(size)).numpy()

    def raw(self, indices: Sequence[int]) -> Tensor:
        chosen = torch.tensor(indices, dtype=torch.int64)
        return compose(chosen, labels(self.split, chosen), self.split, self.seed)


def benchmark(size: int | None = None, *, severity: int = 5, seed: int = 0) -> Made:
    """The test split under any corruption, as a stream takes it; `seed` is the corruptions'."""
    return Made(Glyphs("test", size), severity=severity, table="cifar", seed=seed)


def source_loader(size: int = 10_000, batch: int = 64) -> DataLoader[tuple[Tensor, int]]:
    """Images and labels that the shipped network was trained on."""
    return DataLoader(Glyphs("train", size), batch_size=batch)


def validation_loader(size: int = 1_000, batch: int = 64) -> DataLoader[tuple[Tensor, int]]:
    """Images and labels of the same kind that the shipped network was not trained on, and that no
    benchmark shows."""
    return DataLoader(Glyphs("train", size, seed=1), batch_size=batch)


@cache
def _atlas() -> Tensor:
    """Masks by font and class, 28×28 in 16 levels, with a border of at least two free pixels."""
    with np.load(Path(__file__).with_name("atlas.npz"), allow_pickle=False) as file:
        return torch.from_numpy(file["masks"])


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class _Dice:
    """Random whole numbers for a batch of images, each from its own image's index alone."""

    def __init__(self, indices: Tensor, split: str, seed: int):
        key = np.array([seed % 2**64, list(SIZES).index(split) + 1], np.uint64)
        start = _mix(_mix(key[:1] + np.uint64(_GAMMA)) ^ (key[1:] * np.uint64(_GAMMA)))
        self.state = _mix(start + indices.cpu().numpy().astype(np.uint64) * np.uint64(_GAMMA))
        self.thrown = 0

    def throw(self, low: int, high: int, count: int = 1) -> Tensor:
        """(images, count) numbers from low to high, both included."""
        steps = np.arange(self.thrown + 1, self.thrown + count + 1, dtype=np.uint64)
        self.thrown += count
        words = _mix(self.state[:, None] + steps * np.uint64(_GAMMA)) >> np.uint64(32)
        scaled = (words * np.uint64(high - low + 1)) >> np.uint64(32)
        return torch.from_numpy(scaled.astype(np.int32)) + low


def compose(indices: Tensor, labels: Tensor, split: str, seed: int) -> Tensor:
    """uint8 images (N, 3, 32, 32) of the labels' characters."""
    dice = _Dice(indices, split, seed)
    ground = dice.throw(50, 205, 3)
    # The ink is lighter than a dark ground and darker than a light one, in all channels.
    side = torch.where(ground.sum(1, keepdim=True) < 3 * 128, 1, -1)
    swing = dice.throw(-80, 80, 3)
    image = _spread(ground) + (_spread(swing) * _texture(dice)[:, None] >> 8)
    # Behind the character, two others that reach into the image from left and right.
    for label, start in ((None, -36), (None, 36), (labels, 0)):
        ink = _spread((ground + side * dice.throw(40, 130, 3)).clamp(0, 255))
        shown = dice.throw(0, len(CLASSES) - 1)[:, 0] if label is None else label
        image += (ink - image) * _posed(dice, shown, start)[:, None] >> 8
    return image.clamp_(0, 255).to(torch.uint8)


def _spread(colours: Tensor) -> Tensor:
    return colours[:, :, None, None]


def _texture(dice: _Dice) -> Tensor:
    """(N, 32, 32) from −256 to 256: a wave from gradient to stripes, and smooth noise, blended."""
    pixel = torch.arange(SIDE, dtype=torch.int32)
    across, down = (dice.throw(-96, 96) for _ in range(2))
    phase = (across * pixel)[:, None, :] + (down * pixel)[:, :, None]
    phase += dice.throw(0, 511)[:, :, None]
    wave = ((phase & 511) - 256).abs() * 2 - 256
    lattice = dice.throw(-256, 256, _LATTICE**2).view(-1, _LATTICE, _LATTICE)
    share = dice.throw(0, 256)[:, :, None]
    blend: Tensor = (wave * share + _smooth(lattice) * (256 - share)) >> 8
    return blend


def _smooth(lattice: Tensor) -> Tensor:
    """The lattice stretched over the image, linear between its points."""
    pixel = torch.arange(SIDE, dtype=torch.int32) * (256 * (_LATTICE - 1)) // SIDE
    cell, part = (pixel >> 8).long(), pixel & 255
    for _ in range(2):  # columns, then rows
        low, high = lattice[:, :, cell], lattice[:, :, cell + 1]
        lattice = (low + ((high - low) * part >> 8)).transpose(1, 2)
    return lattice


_ANGLES = range(-35, 36)
_TURNS = torch.tensor(
    [[round(4096 * f(math.radians(a))) for f in (math.cos, math.sin)] for a in _ANGLES],
    dtype=torch.int32,
)


def _posed(dice: _Dice, labels: Tensor, start: int) -> Tensor:
    """(N, 32, 32) masks from 0 to 255, turned, scaled, sheared and shifted."""
    atlas = _atlas()
    fonts, classes, side, _ = atlas.shape
    turn = _TURNS[dice.throw(0, len(_ANGLES) - 1).long()[:, 0]]
    cos, sin = turn[:, :1], turn[:, 1:]
    shrink = dice.throw(250, 500)  # pixels of the mask for one of the image, in 256ths
    wide = shrink * dice.throw(200, 312) >> 8
    shear = dice.throw(-90, 90)
    shift = dice.throw(-11, 11, 2)  # in half pixels
    pixel = 2 * torch.arange(SIDE, dtype=torch.int32) - (SIDE - 1)
    x, y = (pixel - shift[:, :1] - start)[:, None, :], (pixel - shift[:, 1:])[:, :, None]

    def along(by_x: Tensor, by_y: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """Where a pixel lies on one axis of the mask: the whole part, and 256ths."""
        turned = (by_x[:, :, None] * x + by_y[:, :, None] * y) >> 5
        position = (turned * size[:, :, None] >> 8) + (side - 1) * 128
        # Beyond the mask is as empty as its border.
        return (position >> 8).clamp(0, side - 2).long(), position & 255

    column, right = along(cos + (sin * shear >> 8), sin + (cos * shear >> 8), wide)
    row, below = along(-sin, cos, shrink)
    font = dice.throw(0, fonts - 1)[:, 0]
    first = (font * classes + labels) * side * side
    at = first.view(-1, 1, 1) + row * side + column
    flat = atlas.flatten()

    def blend(start: Tensor) -> Tensor:
        left = flat[start].int()
        return (left << 8) + (flat[start + 1].int() - left) * right

    top = blend(at)
    mask = (top << 8) + (blend(at + side) - top) * below
    return mask * 17 >> 16
