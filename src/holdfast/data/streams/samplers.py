"""In which order a stretch of a stream shows its samples: positions, drawn by the labels alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.random import Generator

from holdfast.data.pools import Indices


class Labels(Protocol):
    """The labels of a stretch's samples: an array, or what becomes one when it is needed."""

    def __len__(self) -> int: ...

    def __array__(self, *args: Any, **named: Any) -> Any: ...


Sampler = Callable[[Generator, Labels], Indices]
"""From labels to the positions that are shown, in order."""


def shuffle(rng: Generator, labels: Labels) -> Indices:
    """Each sample once, in random order."""
    return rng.permutation(len(labels))


def sort(rng: Generator, labels: Labels) -> Indices:
    """Class after class, shuffled within a class."""
    order = rng.permutation(len(labels))
    return order[np.argsort(np.asarray(labels)[order], kind="stable")]


def cycle(rng: Generator, labels: Labels, *, count: int) -> Indices:
    """`count` samples: none comes a second time before all have come once."""
    whole, rest = divmod(count, len(labels))
    passes = [rng.permutation(len(labels)) for _ in range(whole)]
    return np.concatenate([*passes, rng.choice(len(labels), rest, replace=False)])


def rotta(rng: Generator, labels: Labels, *, gamma: float, slots: int = 0) -> Indices:
    """RoTTA's: each class spread over slots by Dirichlet(γ), its blocks permuted in a slot."""
    classes = _by_class(labels)
    slots = slots or min(len(classes), 100)
    parts = [
        np.split(members, (np.cumsum(share)[:-1] * len(members)).astype(int))
        for members, share in zip(
            classes, rng.dirichlet([gamma] * slots, len(classes)), strict=True
        )
    ]
    blocks = [parts[c][slot] for slot in range(slots) for c in rng.permutation(len(classes))]
    return np.concatenate(blocks)


def note(rng: Generator, labels: Labels, *, beta: float, tries: int = 1000) -> Indices:
    """NOTE's: as many chunks as classes, closed when full, drawn again until each has ten."""
    least = 10
    classes = _by_class(labels)
    chunks = len(classes)
    if len(labels) < least * chunks:
        raise ValueError(
            f"NOTE's sampler wants {least} samples in each of {chunks} chunks, and this domain has "
            f"{len(labels)} samples: take more images, or sampler=rotta."
        )
    for _ in range(tries):
        parts: list[list[Indices]] = [[] for _ in range(chunks)]
        filled = np.zeros(chunks)
        for members in classes:
            share = rng.dirichlet([beta] * chunks) * (filled < len(labels) / chunks)
            if share.sum() == 0:  # the draw fell into closed chunks alone
                share = (filled == filled.min()).astype(float)
            share /= share.sum()
            cuts = (np.cumsum(share)[:-1] * len(members)).astype(int)
            for chunk, part in enumerate(np.split(rng.permutation(members), cuts)):
                parts[chunk].append(part)
                filled[chunk] += len(part)
        if filled.min() >= least:
            return np.concatenate([part[c] for part in parts for c in rng.permutation(chunks)])
    raise ValueError(
        f"NOTE's sampler found no draw with {least} samples in each chunk in {tries} tries at "
        f"β = {beta:g}: raise gamma, or take sampler=rotta."
    )


def shift_labels(rng: Generator, labels: Labels, *, ratio: float, steps: int) -> Indices:
    """SAR's: each class in turn the likely one for some steps; images come with replacement."""
    classes = _by_class(labels)
    major = np.repeat(rng.permutation(len(classes)), steps)
    # Another class than the major one, each as likely: a step of 1 to C − 1 around the circle.
    other = (major + rng.integers(1, max(len(classes), 2), len(major))) % len(classes)
    drawn = np.where(rng.random(len(major)) * (ratio + len(classes) - 1) < ratio, major, other)
    sizes = np.array([len(members) for members in classes])
    starts = np.cumsum(sizes) - sizes
    place = (rng.random(len(major)) * sizes[drawn]).astype(np.int64)
    positions: Indices = np.concatenate(classes)[starts[drawn] + place]
    return positions


def _by_class(labels: Labels) -> list[Indices]:
    """The positions of each class that is there, in their order."""
    values = np.asarray(labels)
    order = np.argsort(values, kind="stable")
    _, starts = np.unique(values[order], return_index=True)
    return np.split(order, starts[1:])
