"""In which order samples are shown: positions, drawn by the labels alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Sampler = Callable[[Generator, Indices], Indices]
"""From the labels of samples to the positions that are shown, in order."""


def shuffle(rng: Generator, labels: Indices) -> Indices:
    """Each sample once, in random order."""
    return rng.permutation(len(labels))


def sort(rng: Generator, labels: Indices) -> Indices:
    """Class after class, shuffled within a class."""
    order = rng.permutation(len(labels))
    return order[np.argsort(labels[order], kind="stable")]


def cycle(rng: Generator, labels: Indices, *, count: int) -> Indices:
    """`count` samples: none comes a second time before all have come once."""
    whole, remainder = divmod(count, len(labels))
    passes = [rng.permutation(len(labels)) for _ in range(whole)]
    return np.concatenate([*passes, rng.choice(len(labels), remainder, replace=False)])


def rotta(rng: Generator, labels: Indices, *, gamma: float, slots: int = 0) -> Indices:
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


def note(rng: Generator, labels: Indices, *, beta: float, tries: int = 1000) -> Indices:
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


def shift_labels(rng: Generator, labels: Indices, *, ratio: float, steps: int) -> Indices:
    """SAR's: each class in turn the likely one for some steps; images come with replacement."""
    classes = _by_class(labels)
    major = np.repeat(rng.permutation(len(classes)), steps)
    # Another class than the major one, each as likely: a step of 1 to C − 1 around the circle.
    minor = (major + rng.integers(1, max(len(classes), 2), len(major))) % len(classes)
    drawn = np.where(rng.random(len(major)) * (ratio + len(classes) - 1) < ratio, major, minor)
    sizes = np.array([len(members) for members in classes])
    starts = np.cumsum(sizes) - sizes
    member = (rng.random(len(major)) * sizes[drawn]).astype(np.int64)
    positions: Indices = np.concatenate(classes)[starts[drawn] + member]
    return positions


def _by_class(labels: Indices) -> list[Indices]:
    """The positions of each class that is there, in their order."""
    order = np.argsort(labels, kind="stable")
    _, starts = np.unique(labels[order], return_index=True)
    return np.split(order, starts[1:])
