"""What `run`, `paper` and `sweep` share: the options of a run, and those of how runs are done.

One that was not given is None or empty, so that a sweep's file may say it; its help ends in what it
then is.
"""

from __future__ import annotations

import os
from dataclasses import fields, make_dataclass, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import tyro

from holdfast.bench.options import OPTIONS

if TYPE_CHECKING:
    from holdfast.bench.plan import Run

RUNS = Path("runs")

Many = tyro.conf.UseAppendAction[tuple[str, ...]]


class GivenOptions:
    """What was given; a command's own class of it has a field for each option that it takes."""

    seeds: int | None
    out: Path | None
    resume: bool
    again: bool
    snapshot: float | None

    @property
    def given(self) -> dict[str, Any]:
        """By name, what was given of all but `resume` and `again`."""
        named = {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}
        flags = ("resume", "again")
        return {
            name: value
            for name, value in named.items()
            if name not in flags and not (value is None or value is False or value == ())
        }

    def but(self, **others: object) -> GivenOptions:
        """The same, with other values of some."""
        changed: GivenOptions = replace(cast(Any, self), **others)
        return changed

    def plan(self, method: str, seed: int, **others: object) -> Run:
        """A run of a method with these options."""
        import torch

        from holdfast.bench.plan import Run

        usual = {
            "device": "cuda" if torch.cuda.is_available() else "cpu",
            "threads": self.shared_by(1).given["threads"],
        }
        given = {name: value for name, value in self.given.items() if name in OPTIONS}
        return Run.of(method, **{**usual, **given, **others, "seed": seed})

    def shared_by(self, jobs: int) -> GivenOptions:
        """The same, with the cores shared among so many runs at a time."""
        if jobs < 1:
            raise ValueError(f"jobs is how many runs go on at a time, at least 1, not {jobs}.")
        if "threads" in self.given:
            return self
        return self.but(threads=max(1, (os.cpu_count() or 1) // jobs))

    @property
    def all_seeds(self) -> range:
        first, count = self.given.get("seed", 0), 1 if self.seeds is None else self.seeds
        if count < 1:
            raise ValueError(f"seeds is how many seeds, at least 1, not {count}.")
        return range(first, first + count)

    @property
    def place(self) -> Path:
        """Where runs lie."""
        return RUNS if self.out is None else self.out

    @property
    def every(self) -> float:
        """Seconds between two snapshots."""
        from holdfast.bench.run import SNAPSHOT_SECONDS

        seconds = SNAPSHOT_SECONDS if self.snapshot is None else self.snapshot
        if not seconds >= 0:
            raise ValueError(
                f"snapshot is how many seconds lie between two snapshots, at least 0 (one after "
                f"each batch), not {seconds:g}."
            )
        return seconds


Argument = tuple[str, Any, Any]


def _argument(
    name: str, hint: Any, help: str, usual: str = "", aliases: tuple[str, ...] = ()
) -> Argument:
    """A field with its type and its value where it is not given; `usual`: what it then is."""
    kind = next(one for one in get_args(hint) or (hint,) if one is not NoneType)
    simple = kind in (str, int, float, Path)
    told = tyro.conf.arg(
        help=help,
        help_behavior_hint=f"(default: {usual})" if usual else "",
        aliases=aliases,
        metavar=kind.__name__.upper() if simple else None,
    )
    return (
        (name, Annotated[bool, told], False)
        if kind is bool
        else (name, Annotated[hint | None, told], None)
    )


def _class(*, without: tuple[str, ...] = (), several: tuple[str, ...] = ()) -> type[GivenOptions]:
    """With all options of a run but some; of some, several values may be given."""
    arguments: list[Argument] = []
    for flag, one in OPTIONS.items():
        if flag in several:
            none = "; none: without one" if one.default is None else ""
            told = tyro.conf.arg(help=f"{one.help} Once for each{none}.", help_behavior_hint="")
            arguments.append((flag, Annotated[Many, told], ()))
        elif flag not in without:
            arguments.append(_argument(flag, one.hint, one.help, one.usual, one.aliases))
    arguments += [
        _argument("seeds", int, "How many seeds, one after the other from the first.", "1"),
        _argument("out", Path, "Folder that holds a folder for each run.", str(RUNS)),
        _argument("resume", bool, "Go on with what was stopped."),
        _argument("again", bool, "Run anew what is finished, which is replaced once that is done."),
        _argument(
            "snapshot", float, "Seconds between two snapshots: what a kill costs at most.", "60"
        ),
    ]
    made = make_dataclass("Setup", arguments, bases=(GivenOptions,), frozen=True)
    made.__doc__ = "What runs are made on, and how they are done."
    return made


if TYPE_CHECKING:
    Setup = GivenOptions
    PaperSetup = GivenOptions
    SweepSetup = GivenOptions
else:
    Setup = _class()
    # The rest is the experiment's to say, and its preset has a default of its own.
    PaperSetup = _class(without=("stream", "domains", "window", "intruders", "preset", "analysis"))
    # A flag cannot tell "not given" from "no"; a sweep's file or its grid says it.
    SweepSetup = _class(without=("analysis",), several=("stream", "preset"))
