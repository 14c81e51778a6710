"""Finished runs side by side: the same run with several seeds is one result."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from holdfast.bench.code import code_hashes
from holdfast.bench.metrics.recorder import Figures
from holdfast.bench.plan import ELSEWHERE, Run
from holdfast.bench.store import RunFolder
from holdfast.recipes.compose import find_loaded, parse
from holdfast.results.acting import MARK, hardly_acts, steps_taken, with_steps


@dataclass(frozen=True)
class Result:
    """One method on one set-up, over its seeds."""

    folders: tuple[RunFolder, ...]

    @cached_property
    def manifests(self) -> tuple[dict[str, Any], ...]:
        return tuple(folder.manifest for folder in self.folders)

    @cached_property
    def figures(self) -> tuple[Figures, ...]:
        """Of each seed's run; names as in `Recorder.summary`."""
        return tuple(with_steps(one["figures"], one) for one in self.manifests)

    @property
    def title(self) -> str:
        return str(self.manifests[0]["title"])

    @property
    def idle(self) -> str:
        """`1 step of 128`, of the runs in which the method hardly acted; empty where it did."""
        runs = [one for one in self.figures if hardly_acts(one)]
        return steps_taken(runs) if runs else ""

    def marked(self, name: str) -> str:
        """A name for it, marked where the method hardly acted."""
        return f"{name} {MARK}" if self.idle else name

    @property
    def run(self) -> Run:
        """One of its runs."""
        return read_run(self.manifests[0])

    @property
    def seeds(self) -> list[int]:
        return [manifest["run"]["seed"] for manifest in self.manifests]

    @property
    def domains(self) -> list[str]:
        """In the order in which they came."""
        prefix = "accuracy/"
        names = self.figures[0]
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def values(self, figure: str) -> list[float]:
        """A figure of each seed's run, where it is known."""
        found = (figures.get(figure) for figures in self.figures)
        return [float(value) for value in found if value is not None]

    def mean(self, figure: str) -> float:
        values = self.values(figure)
        return statistics.fmean(values) if values else math.nan

    def std(self, figure: str) -> float:
        """Over seeds, as of a sample; NaN with one seed."""
        values = self.values(figure)
        return statistics.stdev(values) if len(values) > 1 else math.nan

    def accuracy(self, domain: str) -> float:
        return self.mean(f"accuracy/{domain}")


def read_run(manifest: dict[str, Any]) -> Run:
    """The run that a manifest is of."""
    known = {one.name for one in fields(Run)}
    given = {name: value for name, value in manifest["run"].items() if name in known}
    # To read a manifest runs no code that it names: the methods are there before the run, which
    # would load them from where they stood.
    run = object.__new__(Run)
    find = partial(find_loaded, hashes=manifest.get("hashes") or {})
    vars(run)["methods"] = parse(given["method"], find)
    Run.__init__(run, **{**given, "tags": tuple(given.get("tags", ()))})
    return run


def of_other_code(runs: Iterable[Run], out: Path) -> list[RunFolder]:
    """Where some of these runs are as other code made them, and not as this one does."""
    there: list[tuple[RunFolder, dict[str, Any]]] = []
    for path in sorted(out.glob("*/manifest.json")):
        with suppress(ValueError):
            there.append((RunFolder(path.parent), RunFolder(path.parent).manifest))
    found: list[RunFolder] = []
    for run in runs:
        alike = [(folder, one) for folder, one in there if _same_but_code(run, one)]
        code = code_hashes(run.methods)
        if not any(code.items() <= one["hashes"].items() for _, one in alike):
            found += [folder for folder, _ in alike]
    return found


def _same_but_code(run: Run, manifest: dict[str, Any]) -> bool:
    """Whether a manifest is of this run, as far as names tell."""
    given, there = asdict(run), manifest.get("run")
    names = given.keys() - {*ELSEWHERE, "method", "stream", "window"}
    return (
        isinstance(there, dict)
        and isinstance(manifest.get("hashes"), dict)
        and isinstance(classes := manifest.get("classes"), int)
        and all(there.get(name, given[name]) == given[name] for name in names)
        and manifest.get("method") == run.composition.for_classes(classes).named_spec
        and manifest.get("stream") == str(run.laid_out)
    )


def group(folders: Iterable[RunFolder]) -> list[Result]:
    """Results in the order of their first run; a folder that is given twice counts once."""
    found: dict[str, list[RunFolder]] = {}
    for folder in {folder.path: folder for folder in folders}.values():
        manifest = folder.manifest
        given = {name: v for name, v in manifest["run"].items() if name not in (*ELSEWHERE, "seed")}
        resolved = {name: manifest[name] for name in ("method", "stream")}
        same = {**given, **resolved, **manifest["hashes"]}
        found.setdefault(json.dumps(same, sort_keys=True), []).append(folder)
    return [Result(tuple(each)) for each in found.values()]


def spread(mean: float, std: float, digits: int = 2) -> str:
    """`43.21 ± 0.12`, or the mean alone; nothing where there is none."""
    if math.isnan(mean):
        return "–"
    return f"{mean:.{digits}f}" + ("" if math.isnan(std) else f" ± {std:.{digits}f}")
