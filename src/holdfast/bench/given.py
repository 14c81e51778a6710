"""Options as somebody gave them, and the runs that follow."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from holdfast.bench.options import OPTIONS

if TYPE_CHECKING:
    from holdfast.bench.plan import Run

# The folder of runs by default.
RUNS = Path("runs")


class GivenOptions:
    """What was given. A dataclass below it has a field for each option, None or empty where it was
    not given."""

    seeds: int | None
    out: Path | None
    resume: bool
    again: bool
    snapshot: float | None

    @property
    def given(self) -> dict[str, Any]:
        """By name, what was given of all but `resume` and `again`."""
        return {
            name: value
            for name, value in vars(self).items()
            if name not in ("resume", "again")
            and not (value is None or value == () or value is _usual(name))
        }

    def plan(self, method: str, seed: int, **options: object) -> Run:
        import torch

        from holdfast.bench.plan import Run

        usual = {
            "device": "cuda" if torch.cuda.is_available() else "cpu",
            "threads": share_of_cores(1),
        }
        given = {name: value for name, value in self.given.items() if name in OPTIONS}
        return Run.of(method, **{**usual, **given, **options, "seed": seed})

    def shared_by(self, jobs: int) -> GivenOptions:
        """The same, with the cores shared among so many runs at a time."""
        given: GivenOptions = replace(cast(Any, self), threads=share_of_cores(jobs))
        return self if "threads" in self.given else given

    @property
    def all_seeds(self) -> range:
        first, count = self.given.get("seed", 0), 1 if self.seeds is None else self.seeds
        if count < 1:
            raise ValueError(f"seeds is how many seeds, at least 1, not {count}.")
        return range(first, first + count)

    @property
    def place(self) -> Path:
        return RUNS if self.out is None else self.out


def _usual(name: str) -> bool | None:
    """The default of a yes-or-no flag; None: the option is not one."""
    default = OPTIONS[name].default if name in OPTIONS else False
    return default if isinstance(default, bool) else None


def share_of_cores(jobs: int) -> int:
    """Threads for each of so many runs at a time."""
    if jobs < 1:
        raise ValueError(f"jobs is how many runs go on at a time, at least 1, not {jobs}.")
    return max(1, (os.cpu_count() or 1) // jobs)


def seconds_between_snapshots(given: float | None) -> float:
    from holdfast.bench.run import SNAPSHOT_SECONDS

    if given is not None and not given >= 0:
        raise ValueError(
            f"snapshot is how many seconds lie between two snapshots, at least 0 (one after "
            f"each batch), not {given:g}."
        )
    return SNAPSHOT_SECONDS if given is None else given
