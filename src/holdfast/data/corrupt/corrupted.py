"""A clean set, corrupted as it is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from holdfast.data.corrupt.corruptions import Table, corrupt
from holdfast.data.images import Images, as_bytes

# Sides up to this one take the table of CIFAR-C, larger ones that of ImageNet-C.
SMALL = 64

Layer = tuple[str, float]
"""A corruption and its severity."""


@dataclass(frozen=True)
class Recipe:
    """What decides how an image is corrupted, beside itself, its index and the corruption."""

    table: Table
    seed: int = 0
    frost: Path | None = None

    def apply(self, images: Tensor, name: str, severity: int, indices: Sequence[int]) -> Tensor:
        return corrupt(
            images,
            name,
            severity,
            indices=indices,
            seed=self.seed,
            table=self.table,
            frost=self.frost,
        )


class Corrupted(Images):
    """Clean images with corruptions upon them, the same each time: what becomes of an image
    depends on the recipe, the layers and the image's index alone. It equals what `holdfast data
    make` writes in CIFAR-C's layout, to the bit, and no released file.

    The published severities are whole. One in between is a share of images: at 2.25, a quarter
    have severity 3 and the others 2, always the same ones. So drift is smooth on average, and
    every image is one that the published tables admit.
    """

    def __init__(self, clean: Images, layers: Sequence[Layer], recipe: Recipe):
        self.clean = clean
        self.layers = tuple(layers)
        self.recipe = recipe
        self.labels = clean.labels
        self.classes, self.names = clean.classes, clean.names

    def at_severity(self, severity: int) -> Images:
        return Corrupted(self.clean, [(name, severity) for name, _ in self.layers], self.recipe)

    def raw(self, indices: Sequence[int]) -> Tensor:
        chosen = np.asarray(indices, np.int64)
        images = as_bytes(self.clean.raw(indices))
        # The golden ratio spreads the shares evenly over any run of indices.
        spread = chosen * 0.6180339887498949 % 1
        for name, severity in self.layers:
            grades = np.floor(severity + spread).astype(int)
            for grade in np.unique(grades[grades > 0]).tolist():
                at = np.flatnonzero(grades == grade)
                places = torch.from_numpy(at)
                images[places] = self.recipe.apply(images[places], name, grade, chosen[at].tolist())
        return images

    def file_name(self, index: int) -> str | None:
        return self.clean.file_name(index)


def find_table(clean: Images) -> Table:
    return "cifar" if max(clean.image(0).shape[1:]) <= SMALL else "imagenet"
