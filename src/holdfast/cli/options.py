"""What `run`, `paper` and `sweep` share: the options of a run, and those of how runs are done.

One that was not given is None or empty, so that a sweep's file may say it; its help ends in what it
then is.
"""

from __future__ import annotations

from dataclasses import make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from holdfast.bench.given import RUNS, GivenOptions
from holdfast.bench.options import OPTIONS, kind_of

Many = tyro.conf.UseAppendAction[tuple[str, ...]]
Specs = Annotated[Many, tyro.conf.arg(aliases=["-m"])]

Argument = tuple[str, Any, Any]


def _argument(
    name: str,
    hint: Any,
    help: str,
    usual: str = "",
    aliases: tuple[str, ...] = (),
    *,
    on: bool = False,
) -> Argument:
    """A field with its type and its value where it is not given; `usual`: what it then is."""
    kind = kind_of(hint)
    told = tyro.conf.arg(
        help=help,
        help_behavior_hint=f"(default: {usual})" if usual else "",
        aliases=aliases,
        metavar=kind.__name__.upper() if kind in (str, int, float, Path) else None,
    )
    if kind is bool:
        return name, Annotated[bool, told], on
    return name, Annotated[hint | None, told], None


def _class(*, without: tuple[str, ...] = (), several: tuple[str, ...] = ()) -> type[GivenOptions]:
    """With all options of a run but some; of some, several values may be given."""
    arguments: list[Argument] = []
    for flag, one in OPTIONS.items():
        if flag in several:
            none = "; none: without one" if one.default is None else ""
            told = tyro.conf.arg(help=f"{one.help} Once for each{none}.", help_behavior_hint="")
            arguments.append((flag, Annotated[Many, told], ()))
        else:
            on = one.default is True
            arguments.append(_argument(flag, one.hint, one.help, one.usual, one.aliases, on=on))
    arguments += [
        _argument("seeds", int, "How many seeds, one after the other from the first.", "1"),
        _argument("out", Path, "Folder that holds a folder for each run.", str(RUNS)),
        _argument("resume", bool, "Go on with what was stopped."),
        _argument("again", bool, "Run anew what is finished, which is replaced once that is done."),
        _argument(
            "snapshot", float, "Seconds between two snapshots: what a kill costs at most.", "60"
        ),
    ]
    arguments = [argument for argument in arguments if argument[0] not in without]
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
    # A flag cannot tell "not given" from "no"; a sweep's file or its grid says it. And a sweep goes
    # on with what was stopped, asked or not.
    SweepSetup = _class(without=("analysis", "resume"), several=("stream", "preset"))
