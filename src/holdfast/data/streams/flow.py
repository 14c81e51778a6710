"""A stream over a data set: batches, from any batch on, in flat memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from holdfast.data.pools import Indices
from holdfast.data.streams.view import Origin, View
from holdfast.util.samplers import Sampler
from holdfast.util.settings import Settled


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
    pieces: tuple[tuple[int, Indices], ...]
    """Numbers of stretches, and positions in them."""

    @property
    def size(self) -> int:
        return sum(len(positions) for _, positions in self.pieces)


@dataclass(frozen=True, repr=False, eq=False)
class Flow(Dataset[Batch]):
    """A stream over a data set. What an adapter is given tells it nothing but images:

    for batch in flow: logits = adapter(batch.images)
    """

    stream: Settled
    view: View
    stretches: Sequence[Stretch]
    batch: int
    seed: int
    rate: float
    """Images a second; 0: it waits."""
    runs_on: bool
    """Whether a batch goes on from one stretch into the next."""
    notices: tuple[str, ...]
    """What to know of the stream before it is shown."""

    def __repr__(self) -> str:
        return f"<Flow {self.stream}, seed {self.seed}: {self.size}>"

    def __len__(self) -> int:
        """The number of batches."""
        return sum(count_batches(self._size(run), self.batch) for run in self._runs())

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def __getitem__(self, plan: Plan) -> Batch:
        """From a plan to its batch, here or in a worker."""
        pieces = [(self.stretches[number], positions) for number, positions in plan.pieces]
        fetched = [self.view.fetch(stretch.origins, positions) for stretch, positions in pieces]
        images, labels, domains = zip(*fetched, strict=True)
        all_labels = torch.cat(labels)
        names = tuple(chain.from_iterable(domains))
        return Batch(
            torch.cat(images), all_labels, names, all_labels >= 0, plan.number, pieces[0][0].visit
        )

    @property
    def samples(self) -> int:
        """The number of images."""
        return sum(map(self._size, self._runs()))

    @property
    def size(self) -> str:
        """In words: `48 images in 3 batches`."""
        images, batches = self.samples, len(self)
        return f"{images:,} image{'s' * (images != 1)} in {batches:,} batch{'es' * (batches != 1)}"

    def _runs(self) -> Iterator[range]:
        """Numbers of stretches that are cut into batches together."""
        count = len(self.stretches)
        step = count if self.runs_on else 1
        return (range(first, first + step) for first in range(0, count, step))

    def _size(self, run: range) -> int:
        return sum(self.stretches[number].size for number in run)

    def plans(self, start: int = 0) -> Iterator[Plan]:
        """From batch `start` on; nothing is drawn for a stretch that lies before it."""
        before = 0
        for run in self._runs():
            yield from self._cut(run, before, max(0, start - before))
            before += count_batches(self._size(run), self.batch)

    def _cut(self, run: range, before: int, number: int) -> Iterator[Plan]:
        """The plans of one run of stretches, from its batch `number` on."""
        batch, total = self.batch, self._size(run)
        count, start = count_batches(total, batch), 0
        pieces: list[tuple[int, Indices]] = []
        for stretch in run:
            size = self.stretches[stretch].size
            at = max(0, number * batch - start)
            if number < count and at < size:
                order = self._draw(stretch)
                while at < size:
                    end = (number + 1) * batch if number + 1 < count else total
                    stop = min(size, end - start)
                    pieces.append((stretch, order[at:stop]))
                    at = stop
                    if start + stop == end:
                        yield Plan(before + number, tuple(pieces))
                        pieces, number = [], number + 1
            start += size

    def _draw(self, number: int) -> Indices:
        stretch = self.stretches[number]
        rng = np.random.default_rng([self.seed, number])
        return stretch.sampler(rng, self.view.labels(stretch.origins))[: stretch.size]

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
                    generator=torch.Generator(),  # else it would draw from torch's own
                )
            )
        return paced(read, self.rate, clock) if self.rate else read


def paced(batches: Iterator[Batch], rate: float, clock: Callable[[], float]) -> Iterator[Batch]:
    """Batches as they come at `rate` images a second, marked as missed while the caller is busy.

    The time between taking a batch and asking for the next one is the caller's; reading images,
    and whatever is done with a missed batch, costs it nothing. At the start it is free, also of a
    stream that is resumed. On CUDA the caller synchronises before it asks for the next batch.
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
