"""How two methods differ: in accuracy, calibration and time, and whether seeds show it."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import iadd
from typing import TypeAlias

from holdfast.bench.metrics.recorder import Tally
from holdfast.results.compare import Group
from holdfast.results.stored import StoredRun

_Read: TypeAlias = Callable[[StoredRun], float]

# Methods that all others are held against, and what they do not do.
BASELINES = {"frozen": "adapt", "bn": "learn"}
ONE_SEED = ", with one seed, so chance is not ruled out"
# Less than the clock can tell, in shares of the time.
CLOCK = 0.01
# In points: of a single domain, what is less is not worth a word.
LOSS = 0.5


@dataclass(frozen=True)
class Difference:
    """Of one figure between two methods, over seeds that both have if there are such."""

    value: float
    spread: float
    """Standard deviation over seeds; NaN with one seed."""
    seeds: int
    least: float = 0.0
    """What is smaller than this is none, with any number of seeds."""

    @property
    def is_known(self) -> bool:
        return math.isfinite(self.value)

    @property
    def is_shown(self) -> bool:
        """Whether the runs show one: it is larger than what another seed changes."""
        return abs(self.value) > max(self.least, 0.0 if math.isnan(self.spread) else self.spread)

    @property
    def text(self) -> str:
        digits = 1 if abs(self.value) >= 1 else 2
        spread = "" if math.isnan(self.spread) else f" ± {self.spread:.{digits}f}"
        return f"{abs(self.value):.{digits}f}{spread}"


@dataclass(frozen=True)
class Pair:
    """Two groups over the domains that both have seen as far as each other."""

    group: Group
    other: Group
    timed: bool = True
    """Whether their times can be compared."""

    @cached_property
    def domains(self) -> list[str]:
        def images(one: Group, name: str) -> set[float]:
            return {stored.figure(f"images/{name}") for stored in one.runs}

        both = [name for name in self.group.domains if name in self.other.domains]
        return [name for name in both if images(self.group, name) == images(self.other, name)]

    @property
    def is_whole(self) -> bool:
        return self.group.domains == self.domains and self.other.domains == self.domains

    def accuracy(self) -> Difference:
        """In points, of the mean over domains."""

        def mean(one: StoredRun) -> float:
            found = [one.figure(f"accuracy/{name}") for name in self.domains]
            return statistics.fmean(found) if found else math.nan

        ours, theirs = self._by_seed(mean)
        return _difference(ours, theirs, least=0.005)

    def accuracy_on(self, domain: str) -> Difference:
        """In points, of one domain."""
        ours, theirs = self._by_seed(lambda one: one.figure(f"accuracy/{domain}"))
        return _difference(ours, theirs, least=LOSS)

    def calibration(self) -> Difference:
        """In points of the expected calibration error."""

        def ece(one: StoredRun) -> float:
            if self.is_whole:
                return 100 * one.figure("ece_15")
            tallies = [_copy(one, name) for name in self.domains]
            known = [tally for tally in tallies if tally is not None]
            return 100 * reduce(iadd, known[1:], known[0]).ece() if known else math.nan

        ours, theirs = self._by_seed(ece)
        return _difference(ours, theirs, least=0.05)

    def time(self) -> Difference:
        """In % of the other's time, of the median of a batch; unknown on different machines, and
        where other runs or programs disturbed it."""
        steady = self.timed and self.group.steady and self.other.steady
        if not steady or _machine(self.group) != _machine(self.other):
            return Difference(math.nan, math.nan, 0)
        ours, theirs = self._by_seed(lambda one: one.figure("time_median"))
        whole = statistics.fmean(theirs.values()) / 100 if theirs else math.nan
        return _difference(
            {seed: value / whole for seed, value in ours.items()},
            {seed: value / whole for seed, value in theirs.items()},
            # Runs come one after the other, so that the machine's moods differ between them.
            least=100 * max(CLOCK, self.group.unevenness, self.other.unevenness),
        )

    def _by_seed(self, figure: _Read) -> tuple[dict[str, float], dict[str, float]]:
        found = []
        for one in (self.group, self.other):
            values = {f"{each.seed} {each.stream}": figure(each) for each in one.runs}
            found.append({seed: value for seed, value in values.items() if math.isfinite(value)})
        return found[0], found[1]


def _difference(
    ours: dict[str, float], theirs: dict[str, float], *, least: float = 0.0
) -> Difference:
    """Seed by seed where both have the same ones."""
    if not ours or not theirs:
        return Difference(math.nan, math.nan, 0, least)
    if ours.keys() == theirs.keys():
        each = [ours[seed] - theirs[seed] for seed in ours]
        spread = statistics.stdev(each) if len(each) > 1 else math.nan
        return Difference(statistics.fmean(each), spread, len(each), least)
    value = statistics.fmean(ours.values()) - statistics.fmean(theirs.values())
    seeds = min(len(ours), len(theirs))
    known = [statistics.stdev(one.values()) for one in (ours, theirs) if len(one) > 1]
    return Difference(value, math.hypot(*known) if known else math.nan, seeds, least)


def _machine(group: Group) -> str:
    first = group.first
    return json.dumps([first.manifest.get("machine"), first.run.get("threads")], sort_keys=True)


def _copy(stored: StoredRun, domain: str) -> Tally | None:
    if stored.recorder is None or domain not in stored.recorder.domains:
        return None
    copy = Tally(stored.recorder.classes)
    copy += stored.recorder.domains[domain]
    return copy
