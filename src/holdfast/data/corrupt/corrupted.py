"""A clean set, corrupted as it is read."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from holdfast.data.corrupt.corruptions import Table, corrupt
from holdfast.data.images import Images, as_bytes

# Sides up to this one take the table of CIFAR-C, larger ones that of ImageNet-C.
SMALL = 64


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
    """One corruption of a clean set, the same each time: what becomes of an image depends on seed,
    corruption, severity and the image's index alone. It equals what `holdfast data make` writes
    in CIFAR-C's layout, to the bit, and no released file."""

    def __init__(
        self,
        clean: Images,
        name: str,
        severity: int = 5,
        *,
        table: Table | None = None,
        seed: int = 0,
        frost: Path | None = None,
    ):
        self.clean = clean
        self.name = name
        self.severity = severity
        self.recipe = Recipe(table or find_table(clean), seed, frost)
        self.labels = clean.labels
        self.classes, self.names = clean.classes, clean.names

    def at_severity(self, severity: int) -> Images:
        other = copy.copy(self)
        other.severity = severity
        return other

    def raw(self, indices: Sequence[int]) -> Tensor:
        images = as_bytes(self.clean.raw(indices))
        return self.recipe.apply(images, self.name, self.severity, indices)

    def file_name(self, index: int) -> str | None:
        return self.clean.file_name(index)


def find_table(clean: Images) -> Table:
    return "cifar" if max(clean.image(0).shape[1:]) <= SMALL else "imagenet"
