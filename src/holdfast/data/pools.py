"""What a stream takes its images from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from holdfast.data.corrupt.corrupted import Corrupted, Layer, Recipe
from holdfast.data.corrupt.corruptions import CORRUPTIONS, Table
from holdfast.data.images import Images
from holdfast.data.readers.layouts import CLEAN

Indices = NDArray[np.int64]


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
    """The domains of a data set by name; a plain dictionary of pools is one."""

    def __getitem__(self, domain: str, /) -> Any: ...


@runtime_checkable
class Graded(Protocol):
    """A data set that can be asked for severities, and for one corruption upon another."""

    def at(self, *layers: Layer) -> Pool: ...


def domain_name(layers: Sequence[Layer]) -> str:
    """`fog@3`, `fog@2.25+snow@1.5`."""
    return "+".join(f"{name}@{severity:g}" for name, severity in layers) or CLEAN


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
            if name not in CORRUPTIONS:
                raise KeyError(f"there is no corruption {name!r}")
        clean = self.clean if isinstance(self.clean, Images) else PoolImages(self.clean)
        return Corrupted(clean, layers, self.recipe)


class Uniform:
    """Uniform noise in the shape of another pool's images; image i is always the same."""

    def __init__(self, size: int, like: Pool):
        self.size = size
        self.like = like

    @property
    def labels(self) -> Indices:
        return np.full(self.size, -1)

    def __len__(self) -> int:
        return self.size

    def images(self, indices: Iterable[int]) -> Tensor:
        drawn = [np.random.default_rng(i).random(self._shape, np.float32) for i in indices]
        return torch.from_numpy(np.stack(drawn))

    @cached_property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self.like.images([0]).shape[1:])
