"""glyphs-c: an embedded benchmark that needs no download.

32×32 colour images of 50 characters, in 24 fonts, in any pose, on textured grounds, with other
characters at their sides; a small BatchNorm ResNet trained on them; and the corruption maker for
the rest. Image i of a split is the same on every machine: see `compose`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from holdfast.data.glyphs.compose import CLASSES, SPLITS, compose
from holdfast.data.images import Images, as_floats
from holdfast.data.pools import Made
from holdfast.models.glyphs import model
from holdfast.util.words import listed

__all__ = ["CLASSES", "SIZES", "Glyphs", "benchmark", "images", "labels", "model", "source_loader"]

SIZES = {"train": 50_000, "test": 10_000}


def labels(split: str, indices: Tensor) -> Tensor:
    """Which of `CLASSES` an image shows: any 50 in a row show each once."""
    _check(split, indices)
    return indices % len(CLASSES)


def images(split: str, indices: Tensor, *, seed: int = 0) -> Tensor:
    """Float images in [0, 1], (N, 3, 32, 32). There are as many as you ask for: `SIZES` are what
    the benchmark takes. Another seed is another set of the same kind."""
    return as_floats(compose(indices, labels(split, indices), split, seed))


def _check(split: str, indices: Tensor) -> None:
    if split not in SPLITS:
        raise ValueError(f"glyphs-c has no split {split!r}: it has {listed(SPLITS)}.")
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
