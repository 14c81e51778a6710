"""What a stream takes its images from, and clean images that are corrupted as they are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.corrupt.corruptions import EVERY, Table, corrupt
from holdfast.data.images import Images, as_bytes
from holdfast.data.readers.layouts import CLEAN

Indices = NDArray[np.int64]
# Sides up to this one take the table of CIFAR-C, larger ones that of ImageNet-C.
SMALL = 64

Layer = tuple[str, float]
"""A corruption and its severity."""


@runtime_checkable
class Pool(Protocol):
    """The labelled images of one domain."""

    @property
    def labels(self) -> Any:
        """Whole numbers, one for each image."""

    def __len__(self) -> int: ...

    def images(self, indices: Iterable[int], /) -> Tensor:
        """Float images in [0, 1], (batch, channels, height, width)."""


class Data(Protocol):
    """The domains of a data set by name; a plain dictionary of pools is one. With a method
    `at(*layers)`, it can be asked for severities, and for one corruption upon another."""

    def __getitem__(self, domain: str, /) -> Any: ...


def domain_name(layers: Sequence[Layer]) -> str:
    """`fog@3`, `fog@2.25+snow@1.5`."""
    return "+".join(f"{name}@{severity:g}" for name, severity in layers) or CLEAN


@dataclass(frozen=True)
class Recipe:
    """What decides how an image is corrupted, beside itself, its index and the corruption."""

    table: Table
    seed: int = 0
    frost: str | Path | None = None

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
                rows = torch.from_numpy(at)
                images[rows] = self.recipe.apply(images[rows], name, grade, chosen[at].tolist())
        return images

    def file_name(self, index: int) -> str | None:
        return self.clean.file_name(index)


def find_table(clean: Images) -> Table:
    return table_for(clean.image(0))


def table_for(image: Tensor) -> Table:
    return "cifar" if max(image.shape[-2:]) <= SMALL else "imagenet"


class PoolImages(Images):
    """What any pool gives, as images."""

    def __init__(self, pool: Pool):
        self.pool = pool
        self.labels = np.asarray(pool.labels)
        self.classes = int(self.labels.max(initial=-1)) + 1

    def raw(self, indices: Sequence[int]) -> Tensor:
        return self.pool.images(indices)


class Made:
    """Clean images, corrupted as a stream asks for them."""

    def __init__(
        self,
        clean: Pool,
        *,
        severity: float = 5,
        table: Table = "cifar",
        seed: int = 0,
        frost: Path | None = None,
    ):
        self.clean = clean
        self.severity = severity
        self.recipe = Recipe(table, seed, frost)

    def __getitem__(self, domain: str) -> Pool:
        return self.clean if domain == CLEAN else self.at((domain, self.severity))

    def at(self, *layers: Layer) -> Pool:
        for name, _ in layers:
            if name not in EVERY:
                raise KeyError(f"there is no corruption {name!r}")
        clean = self.clean if isinstance(self.clean, Images) else PoolImages(self.clean)
        return Corrupted(clean, layers, self.recipe)


class Uniform(Images):
    """Uniform noise in the shape of another pool's images; image i is always the same."""

    classes = 0

    def __init__(self, size: int, like: Pool):
        self.labels = np.full(size, -1)
        self.like = like

    def raw(self, indices: Sequence[int]) -> Tensor:
        drawn = [np.random.default_rng(i).random(self._shape, np.float32) for i in indices]
        return torch.from_numpy(np.stack(drawn))

    @cached_property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self.like.images([0]).shape[1:])
