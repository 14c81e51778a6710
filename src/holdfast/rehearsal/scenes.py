"""What is rehearsed: kinds of drift over a person's own images, of hold-out corruptions alone."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from holdfast.data.corrupt.corruptions import HOLDOUT
from holdfast.data.pools import Corrupted, Layer, Pool, Recipe, domain_name, find_table
from holdfast.data.readers.layouts import CLEAN
from holdfast.data.streams import Flow, Stream, parse
from holdfast.rehearsal.images import Held
from holdfast.util.words import listed

SMALL = 8
"""As many times smaller are small batches."""


@dataclass(frozen=True)
class Level:
    """How long scenes are: images of each domain, and whether each corruption comes at every
    severity or at one of them."""

    images: int
    every: bool

    @staticmethod
    def of(number: int, batch: int) -> Level:
        """Each about twice as long as the one before."""
        return Level(batch * 2 ** max(0, number - 1), every=number > 0)


@dataclass(frozen=True)
class Scene:
    """One kind of drift. `share`: of a level's images that each of its domains shows."""

    name: str
    stream: Stream
    drift: Literal["none", "one severity", "all severities"] = "all severities"
    share: float = 1.0

    @property
    def is_clean(self) -> bool:
        return self.drift == "none"

    def domains(self, level: Level, severities: Sequence[int], index: int) -> list[Layer | None]:
        """Clean images (None), and corruptions with their severities. Where each comes at one
        severity alone, scenes differ in which."""
        if self.is_clean:
            return [None]
        if level.every and self.drift == "all severities":
            drifts = [(name, severity) for name in HOLDOUT for severity in severities]
        else:
            turns = (severities[(at + index) % len(severities)] for at in range(len(HOLDOUT)))
            drifts = list(zip(HOLDOUT, turns, strict=True))
        return [None, *drifts]

    def over(
        self, shown: Held, level: Level, severities: Sequence[int], index: int, seed: int
    ) -> Flow:
        """The scene over images: the same for every method. `index`: which of the scenes it is.

        Images are dealt to domains in the order that the stream draws, so that labels come in runs
        where it has them so, however few images a domain has.
        """
        rng = np.random.default_rng([seed, index])
        domains = self.domains(level, severities, index)
        order = self.stream.draws()(rng, shown.labels)
        size = min(round(self.share * level.images), len(order))
        recipe = Recipe(find_table(shown), seed)
        pools: dict[str, Pool] = {}
        for number in rng.permutation(len(domains)).tolist():
            layer = domains[number]
            dealt = shown.subset(order[np.arange(number * size, (number + 1) * size) % len(order)])
            pool = dealt if layer is None else Corrupted(dealt, [layer], recipe)
            pools[CLEAN if layer is None else domain_name([layer])] = pool
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a short stream may lack what it promises
            return replace(self.stream, order=",".join(pools), clean=False).over(pools, seed=seed)


def scenes(names: Sequence[str], batch: int) -> tuple[Scene, ...]:
    """Scenes by their names, or by spec strings of streams, in batches of so many unless they say
    otherwise."""
    usual = {
        "clean": Scene("clean", _stream("continual", batch), "none", share=4),
        "continual": Scene("continual", _stream("continual", batch)),
        "small batches": Scene(
            "small batches", _stream("continual", max(2, batch // SMALL)), share=0.5
        ),
        "correlated": Scene("correlated", _stream("correlated", batch)),
        "recurring": Scene("recurring", _stream("recurring(visits=2)", batch), "one severity"),
    }
    chosen = [usual.get(name) or _own(name, batch) for name in names or usual]
    twice = {
        scene.name for scene in chosen if sum(scene.name == other.name for other in chosen) > 1
    }
    if twice:
        raise ValueError(f"The stream {listed(sorted(twice))} is named twice: leave one out.")
    if not any(not scene.is_clean for scene in chosen):
        raise ValueError("Clean images alone are no drift to rehearse: name another stream too.")
    return tuple(chosen)


def _stream(spec: str, batch: int) -> Stream:
    stream = parse(spec)
    return stream if "batch" in stream.given else replace(stream, batch=batch)


def _own(spec: str, batch: int) -> Scene:
    stream = _stream(spec, batch)
    if stream.own_severities or stream.takes_intruders or stream.rate:
        raise ValueError(
            f"A rehearsal cannot show {stream.name}, which asks for more than the hold-out "
            "corruptions, or waits for no method: name continual, correlated, recurring, mixed, "
            "switching, labelshift or noisy, with settings."
        )
    if "order" in stream.given or stream.limit:
        raise ValueError(
            f"{spec}: a rehearsal chooses domains and how many images they have itself: leave "
            "order and limit out."
        )
    return Scene(spec.replace(" ", ""), stream)
