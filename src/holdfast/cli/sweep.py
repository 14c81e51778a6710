"""`holdfast sweep`: many runs in one command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from holdfast.cli.run import METHODS, RUNS, Setup, tell_of_other_code
from holdfast.util.terminal import columns, show

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.bench.many import Outcome
    from holdfast.bench.plan import Run
    from holdfast.bench.store import RunFolder
    from holdfast.bench.sweep import Point
    from holdfast.results.results import Result

Many = tyro.conf.UseAppendAction[tuple[str, ...]]


@dataclass(frozen=True)
class Sweep:
    """Many runs: methods × settings × seeds × orders, as many at a time as there are cores.

    Repeat the command to go on with what was stopped; what is finished is not run again.
    """

    file: tyro.conf.Positional[Path | None] = None
    """A TOML file. Its keys are the options of `run` but for resume, again and markdown; order,
    orders, lr and a table grid. Any value may be a list, but for those of out, jobs and snapshot.
    What is given on the command line replaces what the file says."""
    setup: Setup = Setup()
    method: Annotated[Many, tyro.conf.arg(aliases=["-m"])] = ()
    """As in eata, eata+debias, or path/to/file.py:Class for one of your own; once for each."""
    stream: Many = ()
    """continual, correlated(gamma=0.1), …; once for each."""
    domains: str | None = None
    """Which domains come, in this order, as in fog,snow. Default: the stream's own."""
    preset: Many = ()
    """cifar100-c, imagenet-c or none; once for each."""
    grid: Many = ()
    """Values of a method's setting, as in debias.alpha=0.9,0.99, or of an option, as in
    batch=16,64; once for each."""
    orders: int | None = None
    """How many random orders of the domains."""
    lr: tyro.conf.FlagCreatePairsOff[bool] = False
    """Learning rates from a tenth of a method's own to ten times it; by itself, of every method
    that learns."""
    no_lr: tyro.conf.FlagCreatePairsOff[bool] = False
    """Not so, though the file says lr."""
    jobs: int | None = None
    """Runs at a time; by itself, one for each core, or on a GPU one."""
    engine: Literal["processes", "ray"] = "processes"
    """Processes of this machine, or a Ray cluster."""
    address: str = "local"
    """Of the cluster: auto, ray://HOST:PORT, or local, which is this machine by itself."""
    dry_run: bool = False
    """List the runs and say how long their streams are, and do none."""

    def run(self) -> None:
        from holdfast.bench.display.preview import announce, preview, preview_streams
        from holdfast.bench.display.roster import labels
        from holdfast.bench.materials import Materials
        from holdfast.bench.sweep import expand

        given = self.given()
        points = expand(given)
        runs = [point.run for point in points]
        names = labels(runs)
        print(f"{len(runs)} runs", flush=True)
        out = Path(given.get("out", RUNS))
        materials = Materials(out / "cache")
        if self.dry_run:
            print("\n".join(names), flush=True)
            announce(preview_streams(runs, materials, errors=True))
            return
        announce(preview(runs, materials))
        setup = replace(self.setup, out=out, snapshot=given.get("snapshot"))
        outcomes = self.perform(runs, setup, given)
        show(sweep_table(points, outcomes))
        if any("lr" in point.at for point in points):
            print("Which learning rate is best is known from the stream's labels alone.")
        failed = [(name, one.error) for name, one in zip(names, outcomes, strict=True) if one.error]
        for name, error in failed:
            print(f"Failed: {name}: {error}")
        print(f"Runs: {out}")
        if failed:
            raise SystemExit(1)

    def perform(self, runs: Sequence[Run], setup: Setup, given: Mapping[str, Any]) -> list[Outcome]:
        from holdfast.bench.display.roster import Roster
        from holdfast.bench.many import perform_all
        from holdfast.bench.on_ray import perform_on_ray

        out = setup.place
        tell_of_other_code(runs, out)
        how: dict[str, Any] = {"again": setup.again, "every": setup.every}
        with Roster(runs) as roster:
            try:
                if self.engine == "ray":
                    cores = given.get("jobs")
                    return perform_on_ray(
                        runs, out, address=self.address, tell=roster, cores=cores, **how
                    )
                return perform_all(runs, out, jobs=at_a_time(given), tell=roster, **how)
            except KeyboardInterrupt:
                count = f"{roster.finished} of {len(runs)} runs are finished"
                more = ", and to run those anew as well" if setup.again else ""
                print(f"holdfast: {count}. Repeat the command to go on{more}.", file=sys.stderr)
                raise

    def given(self) -> dict[str, Any]:
        """What `expand` takes, and what is said of the sweep as a whole: the file, and over it the
        command line."""
        import torch

        from holdfast.bench.sweep import read_sweep
        from holdfast.recipes.registry import methods

        written = {} if self.file is None else read_sweep(self.file)
        names = ("method", "stream", "domains", "preset", "orders", "jobs")
        own = {name: getattr(self, name) for name in names}
        own["lr"] = self.lr if self.lr or self.no_lr else None
        told = self.setup.given | {
            name: value for name, value in own.items() if value not in (None, ())
        }
        given = {"device": "cuda" if torch.cuda.is_available() else "cpu", **written, **told}
        learning = [name for name, one in methods().items() if one.learns]
        given.setdefault("method", learning if given.get("lr") else METHODS)
        given.setdefault("threads", self.setup.shared_by(at_a_time(given)).threads)
        return {**given, "grid": {**written.get("grid", {}), **read_grid(self.grid)}}


def at_a_time(given: Mapping[str, Any]) -> int:
    """How many runs go on at once; on a GPU they would have to share its memory."""
    if "jobs" in given:
        return int(given["jobs"])
    return 1 if "cuda" in str(given["device"]) else os.cpu_count() or 1


def read_grid(texts: Iterable[str]) -> dict[str, list[str]]:
    """name=value,value by name."""
    found: dict[str, list[str]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        if not (name and values):
            raise ValueError(f"--grid is written like debias.alpha=0.9,0.99, not {text!r}.")
        found.setdefault(name.strip(), []).extend(one.strip() for one in values.split(","))
    return found


Place = tuple[str, ...]


def sweep_table(points: Sequence[Point], outcomes: Sequence[Outcome]) -> Table:
    """A line for each place of the sweep: means over its seeds ± standard deviation. Of learning
    rates, which is the method's own and which the best."""
    from rich.text import Text

    from holdfast.bench.sweep import CHOSEN
    from holdfast.results.acting import idle_notes
    from holdfast.results.results import Result
    from holdfast.results.run_tables import figure, means_of

    names = list(dict.fromkeys(name for point in points for name in point.at))
    folders: dict[Place, list[RunFolder]] = {}
    chosen = {}
    for point, outcome in zip(points, outcomes, strict=True):
        place = tuple(point.at.get(name, "") for name in names)
        folders.setdefault(place, []).extend([outcome.folder] if outcome.folder else [])
        chosen[place] = CHOSEN in point.run.tags
    results = {place: Result(tuple(each)) for place, each in folders.items()}
    best = _best(results, chosen, names.index("lr")) if "lr" in names else None
    means = means_of(results.values())
    sides = [*names, *(["this lr is"] if best else [])]
    table = columns(*sides, "seeds", *means.values(), "ECE %", "bias %")
    for column in table.columns[len(sides) :]:
        column.no_wrap = True
    for place, one in results.items():
        which = ["default"] * (not chosen[place]) + ["best"] * (place in (best or ()))
        table.add_row(
            *map(Text, (one.marked(place[0]), *place[1:])),
            *([", ".join(which)] if best else []),
            str(len(one.folders)),
            *(figure(one, name) for name in means),
            *(figure(one, name, 100, 1) for name in ("ece_15", "bias")),
        )
    idle = {" ".join(place): one.idle for place, one in results.items()}
    table.caption, table.caption_justify = " ".join(idle_notes(idle)) or None, "left"
    return table


def _best(results: Mapping[Place, Result], chosen: Mapping[Place, bool], rate: int) -> set[Place]:
    """Of the places that differ in the learning rate alone, the best ones at which the method
    acted; the default, if none is better."""
    rivals: dict[Place, list[Place]] = {}
    for place, one in results.items():
        if one.values("mean_accuracy") and not one.idle:
            rivals.setdefault(place[:rate] + place[rate + 1 :], []).append(place)
    scores = {p: (one.mean("mean_accuracy"), not chosen[p]) for p, one in results.items()}
    return {max(each, key=scores.__getitem__) for each in rivals.values()}
