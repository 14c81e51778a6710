"""A clean set, corrupted as it is read."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from holdfast.data.corrupt.corruptions import Table, corrupt
from holdfast.data.images import Images, as_bytes

# Sides up to this one take the table of CIFAR-C, larger ones that of ImageNet-C.
SMALL = 64


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
        self.table = table or find_table(clean)
        self.seed = seed
        self.frost = frost
        self.labels = clean.labels
        self.classes, self.names = clean.classes, clean.names

    def at_severity(self, severity: int) -> Images:
        other = copy.copy(self)
        other.severity = severity
        return other

    def image(self, index: int) -> Tensor:
        return self.images([index])[0]

    def images(self, indices: Iterable[int]) -> Tensor:
        return self.raw(indices).to(torch.float32).div_(255)

    def raw(self, indices: Iterable[int]) -> Tensor:
        """As bytes, like a file holds them."""
        indices = list(indices)
        images = as_bytes(self.clean.images(indices))
        return corrupt(
            images,
            self.name,
            severity=self.severity,
            indices=indices,
            seed=self.seed,
            table=self.table,
            frost=self.frost,
        )

    def file_name(self, index: int) -> str | None:
        return self.clean.file_name(index)


def find_table(clean: Images) -> Table:
    return "cifar" if max(clean.image(0).shape[1:]) <= SMALL else "imagenet"
