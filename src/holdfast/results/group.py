"""The same run with several seeds, or several random orders of domains, is one group; and how two
groups differ: in accuracy, calibration and time, and whether seeds show it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from holdfast.bench.sweep import CHOSEN
from holdfast.results.stored import StoredRun, hardly_acts, steps_taken

NONE = "–"


@dataclass(frozen=True)
class Number:
    """A mean over runs, and its sample standard deviation; NaN where there is none."""

    value: float = math.nan
    std: float = math.nan
    by_run: Mapping[str, float] = field(default_factory=dict)
    """Each run's, by what tells runs apart. Empty of a published number."""

    @classmethod
    def over(cls, by_run: Mapping[str, float]) -> Number:
        """Over the runs that define it."""
        known = {run: value for run, value in by_run.items() if math.isfinite(value)}
        if not known:
            return cls()
        std = statistics.stdev(known.values()) if len(known) > 1 else math.nan
        return cls(statistics.fmean(known.values()), std, known)

    def __bool__(self) -> bool:
        """Whether it is known."""
        return math.isfinite(self.value)

    def minus(self, other: Number) -> Number:
        """Run by run where both have the same ones."""
        if self.by_run and self.by_run.keys() == other.by_run.keys():
            return Number.over({run: self.by_run[run] - other.by_run[run] for run in self.by_run})
        stds = [number.std for number in (self, other) if len(number.by_run) > 1]
        return Number(self.value - other.value, math.hypot(*stds) if stds else math.nan)

    def times(self, scale: float) -> Number:
        by_run = {run: scale * value for run, value in self.by_run.items()}
        return Number(scale * self.value, scale * self.std, by_run)

    def text(self, digits: int = 2, *, spread: bool = True, sign: str = "") -> str:
        """`43.21 ± 0.12`, or the mean alone; a dash where there is none."""
        if not self:
            return NONE
        mean = f"{self.value:{sign}.{digits}f}".replace("-", "−")
        shows_spread = spread and math.isfinite(self.std)
        return f"{mean} ± {self.std:.{digits}f}" if shows_spread else mean


# One batch in twenty that takes this many times the median tells of other programs at work.
STEADY = 1.5
# Methods that all others are held against, and what they do not do.
BASELINES = {"frozen": "adapt", "bn": "learn"}
ONE_SEED = ", with one seed, so chance is not ruled out"
# Less than the clock can tell, in shares of the time.
CLOCK = 0.01
# In points: of a single domain, what is less is not worth a word.
LOSS = 0.5


@dataclass(frozen=True)
class Group:
    """One method on one set-up, over its seeds and random orders of domains."""

    label: str
    """Unlike that of any other group of its comparison."""
    runs: tuple[StoredRun, ...]

    @property
    def first(self) -> StoredRun:
        return self.runs[0]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of host and plug-ins."""
        return tuple(self.first.manifest.settings) or (self.first.title,)

    @cached_property
    def written(self) -> tuple[dict[str, Any], ...]:
        """The settings of each that were written out."""
        settings = self.first.manifest.settings
        return tuple(
            {
                key: setting.value
                for key, setting in settings.get(name, {}).items()
                if setting.origin == "written"
            }
            for name in self.names
        )

    @property
    def finished(self) -> bool:
        return all(run.finished for run in self.runs)

    @property
    def chosen(self) -> bool:
        """Whether a setting of it was chosen with the stream's labels."""
        return any(CHOSEN in run.manifest.tags for run in self.runs)

    @cached_property
    def idle(self) -> str:
        """`1 step of 128`, of the runs in which the method hardly acted; empty where it did."""
        idle = [run.metrics for run in self.runs if hardly_acts(run.metrics)]
        return steps_taken(idle) if idle else ""

    @property
    def uncorrected(self) -> bool:
        """Whether what its method answers are no log-probabilities."""
        return any(run.manifest.uncorrected for run in self.runs)

    @cached_property
    def domains(self) -> list[str]:
        """In the order in which they came."""
        return list(dict.fromkeys(name for run in self.runs for name in run.domains))

    @cached_property
    def repeats(self) -> tuple[str, ...]:
        """What its runs differ in: seeds, orders, both, or neither where there is one run."""
        seeds = len({run.seed for run in self.runs})
        orders = len({run.manifest.stream for run in self.runs})
        return ("seeds",) * (seeds > 1) + ("orders",) * (orders > 1)

    def which(self, run: StoredRun) -> str:
        """What tells one of its runs from the others: `seed 1`, `order 0`, `seed 1, order 0`."""
        number = {"seeds": f"seed {run.seed}", "orders": f"order {run.order}"}
        return ", ".join(number[name] for name in self.repeats or ("seeds",))

    def number(self, metric: str) -> Number:
        """A metric over its runs; names as in `Recorder.summary`."""
        return Number.over({run.key: run.metric(metric) for run in self.runs})

    def values(self, metric: str) -> list[float]:
        """The metric of each run, where it is known."""
        return list(self.number(metric).by_run.values())

    def mean(self, metric: str) -> float:
        return self.number(metric).value

    @property
    def unevenness(self) -> float:
        """By which share of the median one batch in twenty takes longer, in the worst run."""
        pairs = ((run.metric("time_p95"), run.metric("time_median")) for run in self.runs)
        return max(
            (slow / median - 1 for slow, median in pairs if median > 0 and slow > 0), default=0.0
        )

    @property
    def steady(self) -> bool:
        """Whether its batches took about as long as each other, so that their time says much."""
        return self.unevenness <= STEADY - 1


def repeated_over(groups: Iterable[Group]) -> str:
    """What their means are over, in words: seeds, orders, seeds and orders."""
    names = {name for group in groups for name in group.repeats}
    return " and ".join(sorted(names, reverse=True)) or "seeds"


@dataclass(frozen=True)
class Difference:
    """The difference of one metric between two methods, over the seeds that both have, if any."""

    number: Number
    least: float = 0.0
    """What is smaller than this is none, with any number of seeds."""
    seeds: int = 0

    @property
    def value(self) -> float:
        return self.number.value

    @property
    def is_known(self) -> bool:
        return bool(self.number)

    @property
    def is_shown(self) -> bool:
        """Whether the runs show one: it is larger than what another seed changes."""
        std = self.number.std
        return abs(self.value) > max(self.least, 0.0 if math.isnan(std) else std)

    @property
    def text(self) -> str:
        digits = 1 if abs(self.value) >= 1 else 2
        return Number(abs(self.value), self.number.std).text(digits)


@dataclass(frozen=True)
class Pair:
    """Two groups over the domains that both have seen as far as each other."""

    group: Group
    other: Group
    timed: bool = True
    """Whether their times can be compared."""

    @cached_property
    def domains(self) -> list[str]:
        def images(group: Group, name: str) -> set[float]:
            return {run.metric(f"images/{name}") for run in group.runs}

        both = [name for name in self.group.domains if name in self.other.domains]
        return [name for name in both if images(self.group, name) == images(self.other, name)]

    @property
    def is_whole(self) -> bool:
        return self.group.domains == self.domains and self.other.domains == self.domains

    def accuracy(self) -> Difference:
        """In points, of the mean over domains."""

        def mean(run: StoredRun) -> float:
            accuracies = [run.metric(f"accuracy/{name}") for name in self.domains]
            return statistics.fmean(accuracies) if accuracies else math.nan

        return self._difference(mean, least=0.005)

    def accuracy_on(self, domain: str) -> Difference:
        """In points, of one domain."""
        return self._difference(lambda run: run.metric(f"accuracy/{domain}"), least=LOSS)

    def calibration(self) -> Difference:
        """In points of the expected calibration error."""

        def ece(run: StoredRun) -> float:
            if self.is_whole:
                return 100 * run.metric("ece_15")
            recorder = run.recorder
            return math.nan if recorder is None else 100 * recorder.tally(self.domains).ece()

        return self._difference(ece, least=0.05)

    def time(self) -> Difference:
        """In % of the other's time, of the median of a batch; unknown on different machines, and
        where other runs or programs disturbed it."""
        steady = self.timed and self.group.steady and self.other.steady
        if not steady or _machine(self.group) != _machine(self.other):
            return Difference(Number())
        # Runs go one after the other, and the machine's speed may change between them.
        least = 100 * max(CLOCK, self.group.unevenness, self.other.unevenness)
        one_percent = self.other.mean("time_median") / 100
        return self._difference(lambda run: run.metric("time_median") / one_percent, least)

    def _difference(self, metric: Callable[[StoredRun], float], least: float) -> Difference:
        ours, theirs = (
            Number.over({run.key: metric(run) for run in group.runs})
            for group in (self.group, self.other)
        )
        return Difference(ours.minus(theirs), least, min(len(ours.by_run), len(theirs.by_run)))


def _machine(group: Group) -> tuple[object, object]:
    return group.first.manifest.machine, group.first.option("threads")


def means_over(groups: Iterable[Group]) -> str:
    several = [group for group in groups if len(group.runs) > 1]
    return f"means ± standard deviation over {repeated_over(several)}" if several else "one seed"
