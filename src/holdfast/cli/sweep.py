"""`holdfast sweep`: many runs in one command."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from holdfast.bench.given import RUNS, seconds_between_snapshots, share_of_cores
from holdfast.cli.options import Many, Specs, SweepSetup
from holdfast.cli.run import METHODS, conclude, show_blocks, tell_of_other_code

if TYPE_CHECKING:
    from holdfast.bench.many import Ended
    from holdfast.bench.plan import Run


@dataclass(frozen=True)
class Sweep:
    """Many runs: methods × settings × seeds × orders, as many at a time as there are cores.

    Repeat the command to go on with what was stopped; what is finished is not run again.
    """

    file: tyro.conf.Positional[Path | None] = None
    """A TOML file. Its keys are the options of `run` but for resume, again and markdown; order,
    orders, lr and a table grid. Any value may be a list, but for those of out, jobs and snapshot.
    What is given on the command line replaces what the file says."""
    setup: SweepSetup = SweepSetup()
    method: Specs = ()
    """As in eata, eata+debias, or path/to/file.py:Class for one of your own; once for each."""
    grid: Many = ()
    """Values of a method's setting, as in debias.alpha=0.9,0.99, or of an option, as in
    batch=16,64; once for each."""
    orders: int | None = None
    """How many random orders of the domains."""
    lr: tyro.conf.FlagCreatePairsOff[bool] = False
    """Learning rates from a tenth of a method's own to ten times it. Default methods: all that
    learn."""
    no_lr: tyro.conf.FlagCreatePairsOff[bool] = False
    """Not so, though the file says lr."""
    jobs: int | None = None
    """Runs at a time. Default: one for each core, or on a GPU one."""
    engine: Literal["processes", "ray"] = "processes"
    """Processes of this machine, or a Ray cluster."""
    address: str = "local"
    """Of the cluster: auto, ray://HOST:PORT, or local, this machine alone."""
    dry_run: bool = False
    """List the runs and say how long their streams are, and do none."""

    def run(self) -> None:
        from holdfast.bench.display import announce, preview, preview_streams
        from holdfast.bench.materials import Materials
        from holdfast.bench.plan import labels
        from holdfast.bench.sweep import expand
        from holdfast.results.tables import sweep_document

        given = self.given()
        points = expand(given)
        runs = [point.run for point in points]
        print(f"{len(runs)} runs", flush=True)
        out = Path(given.get("out", RUNS))
        materials = Materials(out / "cache")
        if self.dry_run:
            print("\n".join(labels(runs)), flush=True)
            announce(preview_streams(runs, materials, errors=True))
            return
        announce(preview(runs, materials))
        outcomes = self.perform(runs, out, given)
        show_blocks(sweep_document(points, [outcome.folder for outcome in outcomes]))
        conclude(outcomes, out)

    def perform(self, runs: Sequence[Run], out: Path, given: Mapping[str, Any]) -> list[Ended]:
        from holdfast.bench.display import Roster
        from holdfast.bench.many import perform_all
        from holdfast.bench.on_ray import perform_on_ray

        tell_of_other_code(runs, out)
        again, every = self.setup.again, seconds_between_snapshots(given.get("snapshot"))
        how: dict[str, Any] = {"again": again, "every": every}
        with Roster(runs) as roster:
            try:
                if self.engine == "ray":
                    how |= {"address": self.address, "cores": given.get("jobs")}
                    return perform_on_ray(runs, out, tell=roster, **how)
                return perform_all(runs, out, jobs=at_a_time(given), tell=roster, **how)
            except KeyboardInterrupt:
                count = f"{roster.finished} of {len(runs)} runs are finished"
                more = ", and to run those anew as well" if again else ""
                print(f"holdfast: {count}. Repeat the command to go on{more}.", file=sys.stderr)
                raise

    def given(self) -> dict[str, Any]:
        """What `expand` takes, and what is said of the sweep as a whole: the file, and over it the
        command line."""
        import torch

        from holdfast.bench.sweep import read_sweep
        from holdfast.recipes.registry import methods

        written = {} if self.file is None else read_sweep(self.file)
        names = ("method", "orders", "jobs")
        own = {name: getattr(self, name) for name in names}
        own["lr"] = self.lr if self.lr or self.no_lr else None
        told = self.setup.given | {
            name: value for name, value in own.items() if value not in (None, ())
        }
        given = {"device": "cuda" if torch.cuda.is_available() else "cpu", **written, **told}
        learning = [name for name, one in methods().items() if one.learns]
        given.setdefault("method", learning if given.get("lr") else METHODS)
        given.setdefault("threads", share_of_cores(at_a_time(given)))
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
