"""A stream over a data set: batches, from any batch on, in flat memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from holdfast.data.pools import Indices
from holdfast.data.streams.samplers import Sampler
from holdfast.data.streams.spec import Stream
from holdfast.data.streams.view import LazyLabels, Origin, View


@dataclass(frozen=True)
class Batch:
    """What a stream yields. An adapter gets `images` and nothing else; the rest is the recorder's.

    `missed`: it came while the method was busy, so that the method may not learn from it.
    """

    images: Tensor
    labels: Tensor
    domains: tuple[str, ...]
    scored: Tensor
    index: int
    visit: int = 0
    missed: bool = False


@dataclass(frozen=True)
class Stretch:
    """Samples of one or more origins, shown in one drawn order."""

    origins: tuple[Origin, ...]
    size: int
    sampler: Sampler
    visit: int = 0


class Lazily(Sequence[Stretch]):
    """Stretches that are made when asked for, where a list of them would be long."""

    def __init__(self, count: int, at: Callable[[int], Stretch]):
        self._count = count
        self._at = at

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < self._count:
            raise IndexError(number)
        return self._at(number)


class Plan(NamedTuple):
    """One batch before its images are read."""

    number: int
    stretch: int
    positions: Indices


class Flow(Dataset[Batch]):
    """A stream over a data set. What an adapter is given tells it nothing but images:

    for batch in flow.batches(): logits = adapter(batch.images)
    """

    def __init__(self, stream: Stream, view: View, seed: int = 0):
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ValueError(f"seed is a whole number from 0 on, not {seed!r}.")
        self.stream = stream
        self.seed = seed
        self._view = view
        self._stretches = stream.stretches(view, seed)

    def __len__(self) -> int:
        """The number of batches."""
        return sum(count_batches(one.size, self.stream.batch) for one in self._stretches)

    @property
    def samples(self) -> int:
        return sum(one.size for one in self._stretches)

    def plans(self, start: int = 0) -> Iterator[Plan]:
        """From batch `start` on; nothing is drawn for a stretch that lies before it."""
        before, batch = 0, self.stream.batch
        for number, stretch in enumerate(self._stretches):
            count = count_batches(stretch.size, batch)
            if before + count > start:
                order = self._draw(number, stretch)
                for k in range(max(0, start - before), count):
                    stop = (k + 1) * batch if k + 1 < count else stretch.size
                    yield Plan(before + k, number, order[k * batch : stop])
            before += count

    def _draw(self, number: int, stretch: Stretch) -> Indices:
        rng = np.random.default_rng([self.seed, number])
        return stretch.sampler(rng, LazyLabels(self._view, stretch.origins))[: stretch.size]

    def __getitem__(self, plan: Plan) -> Batch:
        stretch = self._stretches[plan.stretch]
        images, labels, which = self._view.fetch(stretch.origins, plan.positions)
        return Batch(
            images=images,
            labels=labels,
            domains=tuple(stretch.origins[one].domain for one in which.tolist()),
            scored=labels >= 0,
            index=plan.number,
            visit=stretch.visit,
        )

    def batches(
        self, start: int = 0, *, workers: int = 0, clock: Callable[[], float] = time.perf_counter
    ) -> Iterator[Batch]:
        """The batches from number `start` on, the same as if those before had been shown.

        `workers` read images ahead, in processes of their own.
        """
        if start < 0:
            raise ValueError(f"start is the number of a batch, from 0 on, not {start}.")
        read: Iterator[Batch] = (self[plan] for plan in self.plans(start))
        if workers:
            read = iter(
                DataLoader(
                    self,
                    batch_size=None,
                    sampler=self.plans(start),
                    num_workers=workers,
                    collate_fn=_as_it_is,
                    # Else it would draw from torch's own.
                    generator=torch.Generator(),
                )
            )
        return paced(read, self.stream.rate, clock) if self.stream.rate else read


def paced(batches: Iterator[Batch], rate: float, clock: Callable[[], float]) -> Iterator[Batch]:
    """Batches as they come at `rate` images a second, marked as missed while the caller is busy.

    The time between taking a batch and asking for the next one is the caller's; reading images,
    and whatever is done with a missed batch, costs it nothing. At the start it is free.
    """
    now = free = 0.0
    for batch in batches:
        now += len(batch.labels) / rate
        if free > now:
            yield replace(batch, missed=True)
            continue
        taken = clock()
        yield batch
        free = now + clock() - taken


def count_batches(size: int, batch: int) -> int:
    """How many batches a stretch makes. A tail of one is joined to the batch before, since one
    image has no batch statistics."""
    full, tail = divmod(size, batch)
    return full + (tail > 1 or (tail == 1 and full == 0))


def _as_it_is(batch: Any) -> Any:
    return batch
