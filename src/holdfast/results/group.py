"""The same run with several seeds, or several random orders of domains, is one group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from holdfast.bench.options import DECIDES_IMAGES, NOT_COMPARED
from holdfast.bench.sweep import CHOSEN
from holdfast.results.acting import IDLE, steps_taken
from holdfast.results.numbers import Number
from holdfast.results.stored import StoredRun

# One batch in twenty that takes this many times the median tells of other programs at work.
STEADY = 1.5


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
                key: one.value
                for key, one in settings.get(name, {}).items()
                if one.origin == "written"
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
        idle = [run.metrics for run in self.runs if run.is_idle]
        return steps_taken(idle) if idle else ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a legend says of it."""
        return (CHOSEN,) * self.chosen + (IDLE,) * bool(self.idle)

    @cached_property
    def domains(self) -> list[str]:
        """In the order in which they came."""
        return list(dict.fromkeys(name for run in self.runs for name in run.domains))

    @cached_property
    def repeats(self) -> tuple[str, ...]:
        """What its runs differ in: seeds, orders, both, or neither where there is one run."""
        seeds = len({run.seed for run in self.runs})
        orders = len({run.stream for run in self.runs})
        return ("seeds",) * (seeds > 1) + ("orders",) * (orders > 1)

    def which(self, run: StoredRun) -> str:
        """What tells one of its runs from the others: `seed 1`, `order 0`, `seed 1, order 0`."""
        number = {"seeds": f"seed {run.seed}", "orders": f"order {run.order}"}
        return ", ".join(number[name] for name in self.repeats or ("seeds",))

    def number(self, metric: str) -> Number:
        """A metric over its runs; names as in `Recorder.summary`."""
        return Number.over({run.key: run.metric(metric) for run in self.runs})

    def values(self, metric: str) -> list[float]:
        """Of each run, where it is known."""
        return list(self.number(metric).by_run.values())

    def mean(self, metric: str) -> float:
        return self.number(metric).value

    def std(self, metric: str) -> float:
        """Over runs, as of a sample; NaN with one."""
        return self.number(metric).std

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

    @cached_property
    def conditions(self) -> dict[str, Any]:
        """All that may set it apart from other groups of its comparison, but the method."""
        manifest = self.first.manifest
        aside = {*NOT_COMPARED, *DECIDES_IMAGES}
        return {
            **{name: value for name, value in manifest.run.items() if name not in aside},
            "batch": self.first.batch_size,
            "version": manifest.versions.get("holdfast"),
            "source data": manifest.hashes.get("source"),
            "code": manifest.code[:8],
            **{name: str(value)[:8] for name, value in manifest.own_code.items()},
        }


def repeated_over(groups: Iterable[Group]) -> str:
    """What their means are over, in words: seeds, orders, seeds and orders."""
    names = {name for group in groups for name in group.repeats}
    return " and ".join(sorted(names, reverse=True)) or "seeds"
