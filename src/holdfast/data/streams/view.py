"""A data set as a stream sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from holdfast.data.corrupt.corruptions import EVERY
from holdfast.data.pools import Data, Indices, Layer, Pool, domain_name
from holdfast.data.streams.papers import ORDERS
from holdfast.util.words import nearest


@dataclass(frozen=True)
class Origin:
    """Where samples come from: a domain, or images that belong to no class."""

    domain: str
    layers: tuple[Layer, ...] = ()
    intruder: Pool | None = None
    size: int = 0
    """How many samples; 0: all that the stream's limit admits."""
    turn: int = 0
    """Where a limit leaves images out, each turn shows others."""

    @staticmethod
    def at(*layers: Layer) -> Origin:
        """Corruptions upon another; what is at severity 0 is not there."""
        present = tuple(layer for layer in layers if layer[1] > 0)
        return Origin(domain_name(present), present)


class View:
    """A data set as a stream sees it."""

    def __init__(self, data: Data, limit: int, intruders: Pool | Data | None):
        self.data = data
        self.limit = limit
        self.intruders = intruders

    def pool(self, origin: Origin) -> Pool:
        if origin.intruder is not None:
            return origin.intruder
        at = getattr(self.data, "at", None)
        if origin.layers and at is None:
            raise ValueError(
                f"{origin.domain} is a corruption at a severity of its own, and this data set "
                "has one severity only: use holdfast.data.pools.Made(clean images)."
            )
        try:
            pool: Pool = at(*origin.layers) if at and origin.layers else self.data[origin.domain]
        except KeyError as error:
            raise ValueError(
                f"The stream shows {origin.domain}, and the data set does not have it "
                f"({error.args[0]}).{self._hint(origin)} Name its own domains, as in "
                "order='day,night', and clean=false without clean ones."
            ) from error
        return pool

    def intruders_of(self, domain: str) -> Pool | None:
        """The intruders that were given for a domain, if any were."""
        if self.intruders is None or isinstance(self.intruders, Pool):
            return self.intruders
        try:
            pool: Pool = self.intruders[domain]
        except KeyError as error:
            raise ValueError(
                f"The intruders have none for {domain} ({error.args[0]}): give a data set with the "
                "stream's domains, or one set of images for all."
            ) from error
        return pool

    def _hint(self, origin: Origin) -> str:
        """The nearest of the data set's names, as far as it says them, and of the orders'."""
        if isinstance(self.data, Mapping):
            names = list(self.data)
        else:
            names = [domain.name for domain in getattr(self.data, "domains", ())]
        known = (*(names or EVERY), *ORDERS, "random")
        asked = [name for name, _ in origin.layers] or [origin.domain]
        return next((nearest(name, known) for name in asked if name not in known), "")

    def size(self, origin: Origin) -> int:
        whole = len(self.pool(origin))
        if whole == 0:
            raise ValueError(f"{origin.domain} holds no images.")
        return origin.size or min(whole, self.limit or whole)

    def labels(self, origins: tuple[Origin, ...]) -> Indices:
        """Of all samples of the origins, one after the other; −1 where there is none."""
        return np.concatenate(
            [self._labels(origin, np.arange(self.size(origin))) for origin in origins]
        )

    def _labels(self, origin: Origin, positions: Indices) -> Indices:
        if origin.intruder is not None:
            return np.full(len(positions), -1)
        labels = np.asarray(self.pool(origin).labels)
        return labels[self._indices(origin, positions)].astype(np.int64)

    def _indices(self, origin: Origin, positions: Indices) -> Indices:
        """One out of every stretch of the set, so that one sorted by class keeps all its classes;
        but not the first, lest one whose classes come in turns lose most of them."""
        whole, size = len(self.pool(origin)), self.size(origin)
        if whole == size:
            return positions
        start, end = positions * whole // size, (positions + 1) * whole // size
        # The golden ratio spreads evenly.
        spread = (positions + origin.turn) * 0.6180339887498949 % 1
        return start + (spread * (end - start)).astype(np.int64)

    def fetch(
        self, origins: tuple[Origin, ...], positions: Indices
    ) -> tuple[Tensor, Tensor, tuple[str, ...]]:
        """Images, labels, and the domain that each came from."""
        ends = np.cumsum([self.size(origin) for origin in origins])
        numbers = np.searchsorted(ends, positions, side="right")
        labels = np.empty(len(positions), np.int64)
        images: Tensor | None = None
        for number in np.unique(numbers):
            origin = origins[number]
            at = np.flatnonzero(numbers == number)
            local = positions[at] - (ends[number - 1] if number else 0)
            part = self.pool(origin).images(self._indices(origin, local).tolist())
            labels[at] = self._labels(origin, local)
            if images is None:
                images = part.new_empty(len(positions), *part.shape[1:])
            if part.shape[1:] != images.shape[1:]:
                raise ValueError(
                    f"{origin.domain} has images of shape {tuple(part.shape[1:])}, others in this "
                    f"batch {tuple(images.shape[1:])}: give images of one shape."
                )
            images[torch.from_numpy(at)] = part
        if images is None:
            raise ValueError("A batch needs at least one position.")
        domains = tuple(origins[number].domain for number in numbers)
        return images, torch.from_numpy(labels), domains
