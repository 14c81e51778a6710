"""The plan of a rehearsal: who comes, and in which rungs, so that it fits its minutes.

Each rung has streams twice as long as the one before, and keeps the better half of the methods. It
is fixed from a first timing and then stored, so that a rehearsal that was stopped ends as it would
have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from holdfast.recipes.compose import compose, parse
from holdfast.util.settings import Value

FROZEN, BN = "frozen", "bn"
# They come in every rung: all others are compared with them.
ALWAYS = (FROZEN, BN)
DEFAULT = (
    *("bn+steady", "tent", "eata+debias", "eata+debias+steady"),
    *("roid", "roid+steady", "deyo", "deyo+steady"),
)
# The preset whose optimiser and rate are another thing to try.
SMALL_IMAGES = "cifar100-c"
DESCENT = ("optimizer", "lr", "nesterov", "momentum")
# How many methods come to the last rung, beside those that always come.
FINALISTS = 4
# The share of the time that is planned for, since a first timing is not exact.
PLANNED = 0.9

# Seconds that the streams of a level take with these methods.
Cost = Callable[[int, Sequence[str]], float]


def candidates(specs: Sequence[str]) -> list[str]:
    """Each method, and with what it tunes at other values; those that always come first."""
    named = [variant for spec in specs or DEFAULT for variant in variants(spec)]
    return list(dict.fromkeys((*ALWAYS, *named)))


def variants(spec: str) -> list[str]:
    """The method with each value that its host tunes, and with the optimiser and the rate that its
    papers take for small images, where those are others; as it stands where it says them itself."""
    host, *plugins = parse(spec)
    resolved = compose(spec).host
    free = {name: factors for name, factors in host.tunes.items() if name not in host.given}
    tuned: list[dict[str, Value]] = [
        {
            name: float(f"{getattr(resolved, name) * factor:.4g}")
            for name, factor in zip(free, factors, strict=True)
            if factor != 1
        }
        for factors in product(*free.values())
    ]
    published = host.presets.get(SMALL_IMAGES, {})
    descent = {name: value for name, value in published.items() if name in DESCENT}
    if "optimizer" in descent and not descent.keys() & host.given.keys():
        tuned.append(descent)
    return ["+".join(map(str, (replace(host, **values), *plugins))) for values in tuned]


def passes(spec: str) -> int:
    """What a method costs, counted in forwards: a backward is worth two."""
    method = compose(spec)
    return method.forwards[1] + 2 * method.backwards[1]


@dataclass(frozen=True)
class Rung:
    """Streams of a level, for so many methods beside those that always come."""

    level: int
    methods: int


def plan_rungs(
    methods: Sequence[str], cost: Cost, seconds: float, highest: int
) -> tuple[list[Rung], float]:
    """The rungs that end with the longest streams which fit, and of those the ones that begin with
    the longest; and how long they take at most, if the dearest methods stay. `highest`: the longest
    streams that there are images for."""
    always = [method for method in methods if method in ALWAYS]
    others = [method for method in methods if method not in ALWAYS]
    dearest = sorted(others, key=lambda method: -cost(0, [method]))

    def at_most(rungs: Sequence[Rung]) -> float:
        return sum(cost(rung.level, [*always, *dearest[: rung.methods]]) for rung in rungs)

    longest = 1 + max(0, math.ceil(math.log2(max(len(others), 1) / FINALISTS)))
    for last in range(highest, -1, -1):
        for count in range(1, min(longest, last + 1) + 1):
            levels = range(last - count + 1, last + 1)
            rungs = [
                Rung(level, min(len(others), max(FINALISTS, math.ceil(len(others) / 2**number))))
                for number, level in enumerate(levels)
            ]
            if at_most(rungs) <= PLANNED * seconds:
                return rungs, at_most(rungs)
    needed = cost(0, methods) / PLANNED - seconds
    raise ValueError(
        f"There is no time for a first round of {len(methods)} methods: it takes "
        f"{math.ceil(needed / 6) / 10:g} minutes more. Give more minutes, or name fewer methods or "
        "streams."
    )


@dataclass(frozen=True)
class Timing:
    """Seconds for an image, in the first batches: of each method by size of the batch, and of
    making the image."""

    methods: Mapping[str, Mapping[int, float]]
    making: float

    def cost(self, sizes: Sequence[tuple[int, int]], methods: Sequence[str]) -> float:
        """Seconds for streams of so many images in batches of so many."""
        return sum(
            images * (self.making + sum(self.methods[method][batch] for method in methods))
            for images, batch in sizes
        )
