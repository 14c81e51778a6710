"""From an experiment of the paper to runs, and from finished runs to its numbers.

runs = plans(experiment, setup)                   # lines and the runs they ask for
answer = evaluate(experiment, {line: folders})   # numbers, ours and published

How an answer is shown is no matter of this file: see `layout`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from holdfast.bench.plan import Run
from holdfast.bench.store import RunFolder
from holdfast.paper.comparable import (
    CONTROL,
    differences,
    in_protocol,
    model_name,
    planned_differences,
    published_row,
)
from holdfast.paper.experiments import Experiment, Line
from holdfast.paper.measures import MEASURES, SIXTEEN, Finished, Measure
from holdfast.paper.published import PublishedFigure
from holdfast.recipes.compose import PRESETS, compose
from holdfast.results.acting import MARK
from holdfast.results.results import Result
from holdfast.util.words import listed

if TYPE_CHECKING:
    from holdfast.cli.options import GivenOptions


# Runs.


def plans(
    experiment: Experiment, setup: GivenOptions, preset: str | None = None
) -> list[tuple[Line, Run]]:
    """Every run of an experiment, beside the line that it is for."""
    if "batch" in setup.given and any(line.batch for line in experiment.lines):
        raise ValueError(f"{experiment.id} is about the batch size: leave out --batch.")
    found = [
        (line, _plan(experiment, setup, preset, line, stream, seed))
        for line in experiment.lines
        for stream in experiment.streams
        for seed in setup.all_seeds
    ]
    compared = [run for line, run in found if in_protocol(experiment, line)]
    missing = CONTROL.method not in (line.method for line in experiment.lines)
    if missing and not any(planned_differences(run, experiment) for run in compared):
        control = replace(experiment, analysis=False)
        run = _plan(control, setup, preset, CONTROL, experiment.streams[0], setup.all_seeds[0])
        found.append((CONTROL, run))
    return found


def _plan(
    experiment: Experiment,
    setup: GivenOptions,
    preset: str | None,
    line: Line,
    stream: str,
    seed: int,
) -> Run:
    if preset is None:
        data = setup.given.get("data")
        preset = data if data in PRESETS else experiment.benchmark.preset
    given = {"preset": preset, "stream": stream, "analysis": experiment.analysis}
    batch = {} if line.batch is None else {"batch": line.batch}
    return setup.plan(_shortest(line.method, preset), seed, **given, **batch)


def _shortest(method: str, preset: str) -> str:
    """Without its settings where they are what it has anyway, so that experiments share runs."""
    whole = compose(method, preset=preset)
    return whole.names if compose(whole.names, preset=preset) == whole else method


def chosen(experiment: Experiment, methods: Iterable[str]) -> Experiment:
    """The experiment with the lines of some methods only."""
    preset = experiment.benchmark.preset
    wanted = {method: compose(method, preset=preset) for method in methods}
    lines = [(line, compose(line.method, preset=preset)) for line in experiment.lines]
    for method, one in wanted.items():
        if one not in [composition for _, composition in lines]:
            raise ValueError(
                f"{experiment.id} has no line {method!r}; it has "
                f"{listed(dict.fromkeys(line.method for line, _ in lines), 99)}."
            )
    kept = tuple(line for line, composition in lines if composition in wanted.values())
    return replace(experiment, lines=kept)


# Numbers.


@dataclass(frozen=True)
class Number:
    """A mean over runs, and its standard deviation as of a sample."""

    value: float
    std: float | None = None
    of: tuple[float, ...] = ()
    """Each run's; NaN where it is not defined. Empty of a published number."""

    @classmethod
    def over(cls, values: Sequence[float]) -> Number | None:
        """None where no run defines it."""
        known = [value for value in values if math.isfinite(value)]
        if not known:
            return None
        std = statistics.stdev(known) if len(known) > 1 else None
        return cls(statistics.fmean(known), std, tuple(values))

    def minus(self, other: Number) -> Number:
        """Run by run where both have the same ones, seed by seed and order by order."""
        if self.of and len(self.of) == len(other.of):
            pairs = zip(self.of, other.of, strict=True)
            paired = Number.over([one - another for one, another in pairs])
            if paired is not None:
                return paired
        return Number(self.value - other.value)


@dataclass(frozen=True)
class Row:
    """Numbers by column; what is not known has no cell."""

    label: str
    cells: Mapping[str, Number]
    host: str | None = None
    """The label of the row that this one adds a plug-in to."""
    idle: frozenset[str] = frozenset()
    """The columns in which its method hardly acted."""

    @property
    def marked(self) -> str:
        """Its label, marked where the method hardly acted."""
        return f"{self.label} {MARK}" if self.idle else self.label


@dataclass(frozen=True)
class Change:
    """What a plug-in adds to its host's numbers, as they come out: negative where it takes. What
    differs from a host that hardly acted is no change."""

    label: str
    host: str
    cells: Mapping[str, Number]
    higher: int
    of: int
    """In how many of the columns that are no summary the number is higher."""
    mark: str = ""
    """Where one of the two hardly acted."""


@dataclass(frozen=True)
class Grid:
    """One table of an answer: ours, and what the paper prints of it."""

    measure: Measure
    columns: tuple[str, ...]
    summary: tuple[str, ...]
    rows: tuple[Row, ...]
    published: tuple[Row, ...]

    @property
    def changes(self) -> tuple[Change, ...]:
        return self._changes(self.rows)

    @property
    def published_changes(self) -> tuple[Change, ...]:
        return self._changes(self.published)

    def _changes(self, rows: tuple[Row, ...]) -> tuple[Change, ...]:
        by_label = {row.label: row for row in rows}
        found = []
        for row in rows:
            host = by_label.get(row.host or "")
            if host is None:
                continue
            acted = (name for name in self.columns if name not in row.idle | host.idle)
            both = [name for name in acted if name in row.cells and name in host.cells]
            cells = {name: row.cells[name].minus(host.cells[name]) for name in both}
            details = [cells[name] for name in both if name not in self.summary]
            higher = sum(one.value > 0 for one in details)
            mark = MARK if row.idle | host.idle else ""
            found.append(Change(row.label, host.label, cells, higher, len(details), mark))
        return tuple(found)


@dataclass(frozen=True)
class Answer:
    """An experiment's numbers."""

    experiment: Experiment
    grids: tuple[Grid, ...]
    facts: Mapping[str, str]
    """What the runs were made on."""
    differences: tuple[str, ...]
    """What keeps our numbers from standing beside the paper's; empty: nothing."""
    missing: tuple[str, ...]
    """Lines that have no finished run."""
    idle: Mapping[str, str] = field(default_factory=dict)
    """By line whose method hardly acted: `1 step of 128`."""

    @property
    def has_published(self) -> bool:
        return any(grid.published for grid in self.grids)


def evaluate(experiment: Experiment, found: Mapping[Line, Sequence[RunFolder]]) -> Answer:
    """The numbers of finished runs. A line that has none stands in `missing`."""
    runs = {line: [Finished(one) for one in folders] for line, folders in found.items()}
    finished = {line: [one for one in ones if one.folder.finished] for line, ones in runs.items()}
    present = [line for line in experiment.lines if finished.get(line)]
    if not present:
        raise ValueError(f"No run of {experiment.id} is finished.")
    compared = [line for line in present if in_protocol(experiment, line)]
    control = [] if CONTROL in present else finished.get(CONTROL, [])
    return Answer(
        experiment,
        tuple(_grid(experiment, MEASURES[name], finished) for name in experiment.measures),
        _facts(experiment, [one for line in present for one in finished[line]]),
        differences(experiment, [*control, *(one for line in compared for one in finished[line])]),
        tuple(line.label for line in experiment.lines if line not in present),
        {
            line.label + ("" if line.batch is None else f" at batch size {line.batch}"): steps
            for line in present
            if (steps := _idle(finished[line]))
        },
    )


def _idle(runs: Iterable[Finished]) -> str:
    """`1 step of 128`, of the runs in which the method hardly acted; empty where it did."""
    return Result(tuple(one.folder for one in runs)).idle


def _grid(
    experiment: Experiment, measure: Measure, finished: Mapping[Line, Sequence[Finished]]
) -> Grid:
    ours: dict[str, dict[str, Number]] = {}
    printed: dict[str, dict[str, Number]] = {}
    hosts: dict[str, str | None] = {}
    idle: dict[str, set[str]] = {}
    columns: dict[str, None] = {}
    for line in experiment.lines:
        host = experiment.host_of(line)
        hosts.setdefault(line.label, None if host is None else host.label)
        read = [measure.read(one) for one in finished.get(line, ())]
        for name in dict.fromkeys(name for one in read for name in one):
            columns.setdefault(_column(name, line))
            if _idle(finished[line]):
                idle.setdefault(line.label, set()).add(_column(name, line))
            number = Number.over([one.get(name, math.nan) for one in read])
            if number is not None:
                ours.setdefault(line.label, {})[_column(name, line)] = number
        for name, number in _printed(experiment, line, measure).items():
            printed.setdefault(line.label, {})[_column(name, line)] = number
    known = tuple(name for name in columns if any(name in cells for cells in ours.values()))
    return Grid(
        measure,
        known,
        known if any(line.batch for line in experiment.lines) else measure.summary,
        tuple(
            Row(label, ours.get(label, {}), host, frozenset(idle.get(label, ())))
            for label, host in hosts.items()
        ),
        tuple(Row(label, cells, hosts[label]) for label, cells in printed.items()),
    )


def _column(name: str, line: Line) -> str:
    return name if line.batch is None else str(line.batch)


def _printed(experiment: Experiment, line: Line, measure: Measure) -> dict[str, Number]:
    """The paper's numbers of a line: those of tables, and those that the text states."""
    row = published_row(experiment, line)
    found = {}
    if row is not None:
        found = {name: Number(value) for name, value in measure.printed(row).items()}
        if row.std is not None and SIXTEEN in found:
            found[SIXTEEN] = Number(row.mean, row.std)
    if isinstance(experiment.printed, PublishedFigure):
        for stated in experiment.printed.stated:
            name = stated.quantity.removeprefix("share ")
            if stated.method == line.method and name in measure.summary:
                found[name] = Number(stated.value)
    return found


def _facts(experiment: Experiment, runs: Sequence[Finished]) -> dict[str, str]:
    """Each in words, with all values where runs differ."""

    def all_of(values: Iterable[object]) -> str:
        return listed(dict.fromkeys(map(str, values)), 99)

    batches = [one.run.resolved_stream.batch for one in runs]
    windows = [one.run.effective_window for one in runs]
    return {
        "data": all_of(one.run.data.name for one in runs),
        "model": all_of(model_name(one.run) for one in runs),
        "preset": all_of(one.run.preset for one in runs),
        "severity": all_of(one.run.data.severity for one in runs),
        "images a domain": all_of(
            round(one.manifest["images"] / len(one.manifest["order"])) for one in runs
        ),
        "images a batch": all_of(batches),
        **({"window": all_of(windows)} if any(windows) else {}),
        "orders": f"{experiment.orders} random ones" if experiment.orders else "the paper's",
        "seeds": all_of(one.run.seed for one in runs),
        "machine": all_of(
            f"{one.manifest['machine']['processor']}, {one.run.machine.device}, "
            f"threads {one.run.machine.threads}"
            for one in runs
        ),
    }
