"""How methods compare on the same images, and what follows from it.

Scores are mean accuracies over streams, in %. Two methods are compared batch by batch, since both
saw the same ones; batches are the units of the error, since what a method does to one image of a
batch it does to its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from holdfast.rehearsal.plan import ALWAYS, BN, FROZEN
from holdfast.util.words import enumerated

# Standard errors of a 95 % interval: what lies within is noise.
SURE = 1.96
# Standard errors from the best within which a cheaper method is taken instead.
NEAR = 1.0


@dataclass(frozen=True)
class Evaluation:
    """What a method made of a stream: how many it had right in each batch, of how many."""

    right: tuple[int, ...]
    images: tuple[int, ...]
    collapsed: bool = False
    failed: str | None = None
    """Why it broke off; the rest of it says nothing then."""
    seconds: float = 0.0

    @property
    def accuracy(self) -> float:
        return 100 * sum(self.right) / max(sum(self.images), 1)


Showing = Mapping[str, Evaluation]
"""What a method made of the streams, by their names."""


@dataclass(frozen=True)
class Difference:
    """In points, with its standard error."""

    mean: float
    error: float

    @property
    def margin(self) -> float:
        """Half of the 95 % interval."""
        return SURE * self.error

    @property
    def is_clear(self) -> bool:
        return abs(self.mean) > self.margin

    def __str__(self) -> str:
        return f"{round(self.mean, 1) + 0.0:+.1f} ± {self.margin:.1f}".replace("-", "−")


def compare(first: Showing, second: Showing, streams: Sequence[str] | None = None) -> Difference:
    """By how much the first is better, the mean over streams, with its error."""
    differences = [_compare_on(first[name], second[name]) for name in streams or first]
    error = math.sqrt(sum(difference.error**2 for difference in differences)) / len(differences)
    return Difference(fmean(difference.mean for difference in differences), error)


def _compare_on(first: Evaluation, second: Evaluation) -> Difference:
    """The ratio of sums over batches, which may differ in size."""
    total, batches = sum(first.images), len(first.images)
    if batches < 2:
        return Difference(first.accuracy - second.accuracy, math.inf)
    gains = [mine - its for mine, its in zip(first.right, second.right, strict=True)]
    mean = sum(gains) / total
    apart = sum((gain - mean * size) ** 2 for gain, size in zip(gains, first.images, strict=True))
    return Difference(100 * mean, 100 * math.sqrt(batches / (batches - 1) * apart) / total)


def score(showing: Showing) -> float:
    return fmean(evaluation.accuracy for evaluation in showing.values())


def collapsed_on(showing: Showing, frozen: Showing) -> list[str]:
    """Where predictions fell into a few classes, and it did worse for it than without adapting."""
    return [
        name
        for name, evaluation in showing.items()
        if evaluation.collapsed and evaluation.accuracy < frozen[name].accuracy
    ]


def failure(showing: Showing) -> str | None:
    broken = {
        name: evaluation.failed
        for name, evaluation in showing.items()
        if evaluation.failed is not None
    }
    return next((f"failed on {name}: {why}" for name, why in broken.items()), None)


def ranked(showings: Mapping[str, Showing]) -> list[str]:
    """The methods that may be chosen, the best first."""
    frozen = showings[FROZEN]
    sound = [
        name
        for name, showing in showings.items()
        if failure(showing) is None and not collapsed_on(showing, frozen)
    ]
    return sorted(sound, key=lambda name: -score(showings[name]))


def survivors(showings: Mapping[str, Showing], count: int) -> list[str]:
    """The best so many of a rung, and those that always come, in the order they had."""
    best = [name for name in ranked(showings) if name not in ALWAYS][:count]
    return [name for name in showings if name in ALWAYS or name in best]


@dataclass(frozen=True)
class Choice:
    """What to take, and what is as good within error."""

    method: str
    alike: tuple[str, ...]
    sentence: str


def choose(showings: Mapping[str, Showing], passes: Mapping[str, int]) -> Choice:
    """Frozen, unless something is better beyond its error. Else, of those within a standard error
    of the best, the one that costs least; of these the best."""
    order = ranked(showings)
    against_best = {name: compare(showings[name], showings[order[0]]) for name in order}
    alike = [name for name in order if not against_best[name].is_clear]
    near = [name for name in alike if -against_best[name].mean <= NEAR * against_best[name].error]
    method = min(near, key=lambda name: (passes[name], order.index(name)))
    method = FROZEN if FROZEN in alike else method
    write = _frozen_sentence if method == FROZEN else _sentence
    return Choice(method, tuple(alike), write(method, alike, order, showings))


def _frozen_sentence(
    method: str, alike: Sequence[str], order: Sequence[str], showings: Mapping[str, Showing]
) -> str:
    others = [name for name in order if name != method]
    if not others:
        return "Keep it frozen: there is nothing else that can be taken."
    gain = compare(showings[others[0]], showings[method])
    why = "all else is worse" if gain.mean < 0 else "nothing is better beyond its error"
    return f"Keep it frozen: {why}; the best of the others, {others[0]}, is at {gain} points."


def _sentence(
    method: str, alike: Sequence[str], order: Sequence[str], showings: Mapping[str, Showing]
) -> str:
    gains = [f"{compare(showings[method], showings[FROZEN])} points over frozen"]
    if BN in showings and method != BN and failure(showings[BN]) is None:
        gains.append(f"{compare(showings[method], showings[BN])} over bn")
    others = [name for name in alike if name != method]
    noise = f", or {' or '.join(others)} (the differences are noise)" if others else ""
    streams = len(showings[method])
    where = f", mean over {streams} streams" if streams > 1 else ""
    reason = f"{' and '.join(gains)}{where}"
    return f"Take {method}{noise}: {reason}."


def why_dropped(name: str, showings: Mapping[str, Showing], best: str) -> str:
    """Why a method did not come to the next rung."""
    if (broken := failure(showings[name])) is not None:
        return broken
    if streams := collapsed_on(showings[name], showings[FROZEN]):
        return f"collapsed on {enumerated(streams)}"
    images = sum(sum(evaluation.images) for evaluation in showings[name].values())
    return f"{compare(showings[name], showings[best])} points against {best} after {images} images"


def why_not(
    name: str, showings: Mapping[str, Showing], choice: Choice, passes: Mapping[str, int]
) -> str:
    """Why a method of the last rung is not the one to take."""
    if name not in choice.alike:
        best = choice.alike[0]
        return why_dropped(name, showings, best)
    gain = compare(showings[name], showings[choice.method])
    ratio = passes[name] / passes[choice.method]
    costs = f", at {ratio:.2g} times its cost" if ratio > 1 else ""
    return f"as good as {choice.method} within error ({gain} points){costs}"
