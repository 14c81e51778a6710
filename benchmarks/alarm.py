"""How often the alarm rings on streams without drift: on a share of `level` of them, at most.

    python benchmarks/alarm.py                      # clean images of the embedded benchmark
    python benchmarks/alarm.py --skew 0.1           # labels in runs, as RoTTA's sampler draws them

Streams are of clean test images that the network has not seen; each is drawn anew, and the adapter
begins anew with each. Where a method learns nothing, batches that would not be measured are not
shown: they change nothing, and what is counted is the same.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
import tyro
from torch import Tensor

import holdfast
from holdfast.data import glyphs
from holdfast.data.holdout import drifted
from holdfast.engine.state import learnt
from holdfast.util.progress import progress
from holdfast.util.samplers import rotta


@dataclass(frozen=True)
class Setup:
    """What is counted over which streams."""

    method: str = "eata+debias+steady"
    streams: int = 200
    batches: int = 200
    batch: int = 64
    skew: float = 0.0
    """Of a Dirichlet law, by which labels come in runs; 0: images are drawn at random."""
    level: float = 0.05
    every: int = 8
    seed: int = 0


def order(rng: np.random.Generator, labels: Tensor, setup: Setup) -> np.ndarray:
    size = setup.batches * setup.batch
    if not setup.skew:
        return rng.integers(len(labels), size=size)
    passes = -(-size // len(labels))
    drawn = [rotta(rng, labels.numpy(), gamma=setup.skew) for _ in range(passes)]
    return np.concatenate(drawn)[:size]


def main(setup: Setup) -> None:
    model, loader = glyphs.model(), glyphs.source_loader()
    source = holdfast.Source.from_loader(model, loader, drifted=drifted(loader))

    def adapt(every: int) -> holdfast.Adapter:
        options = holdfast.HealthOptions(every=every, level=setup.level)
        return holdfast.adapt(model, setup.method, source=source, health=options)

    adapter, step = adapt(setup.every), 1
    if not learnt(adapter._state.tensors()):
        adapter, step = adapt(1), setup.every
    start = time.monotonic()
    indices = torch.arange(glyphs.SIZES["test"])
    images = glyphs.images("test", indices)
    labels = glyphs.labels("test", indices)
    rang = []
    with progress("Streams without drift", setup.streams) as advance, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for stream in range(setup.streams):
            adapter.reset()
            rng = np.random.default_rng([setup.seed, stream])
            for part in order(rng, labels, setup).reshape(-1, setup.batch)[::step]:
                adapter(images[part])
                if adapter.last.alarm or adapter.last.collapsed:
                    rang.append(stream)
                    break
            advance(1)
    share = len(rang) / setup.streams
    error = sqrt(setup.level * (1 - setup.level) / setup.streams)
    kind = f"labels in runs (Dirichlet {setup.skew:g})" if setup.skew else "drawn at random"
    print(
        f"{setup.method}, {setup.streams} streams of {setup.batches} batches of "
        f"{setup.batch} clean images, {kind}, seed {setup.seed}: the alarm rang "
        f"on {len(rang)} ({share:.1%}); stated: at "
        f"most {setup.level:.1%}, with a binomial error of {error:.1%}. "
        f"Streams: {rang}. {time.monotonic() - start:.0f} s."
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(tyro.cli(Setup))
