"""From an experiment of the paper to runs, and from finished runs to its numbers.

runs = plans(experiment, setup)                   # lines and the runs they ask for
answer = evaluate(experiment, {line: folders})   # numbers, ours and published

How an answer is shown is no matter of this file: see `document`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from holdfast.bench.given import GivenOptions
from holdfast.bench.plan import Run
from holdfast.bench.store import RunFolder
from holdfast.paper import comparable
from holdfast.paper.comparable import CONTROL, in_protocol
from holdfast.paper.experiments import Experiment, Line
from holdfast.paper.measures import MEASURES, SIXTEEN, Measure
from holdfast.recipes.compose import PRESETS, compose
from holdfast.results.group import Group, Number
from holdfast.results.stored import StoredRun
from holdfast.util.words import listed

# Runs.


def plans(
    experiment: Experiment, setup: GivenOptions, preset: str | None = None
) -> list[tuple[Line, Run]]:
    """Every run of an experiment, beside the line that it is for."""
    if "batch" in setup.given and any(line.batch for line in experiment.lines):
        raise ValueError(f"{experiment.id} is about the batch size: leave out --batch.")
    if preset is None:
        data = setup.given.get("data")
        preset = data if data in PRESETS else experiment.benchmark.preset

    def plan(line: Line, stream: str, seed: int) -> tuple[Line, Run]:
        analysis = experiment.analysis and line != CONTROL
        given = {"preset": preset, "stream": stream, "analysis": analysis}
        batch = {} if line.batch is None else {"batch": line.batch}
        return line, setup.plan(_shortest(line.method, preset), seed, **given, **batch)

    planned = [
        plan(line, stream, seed)
        for line in experiment.lines
        for stream in experiment.streams
        for seed in setup.all_seeds
    ]
    compared = [run for line, run in planned if in_protocol(experiment, line)]
    missing = CONTROL.method not in (line.method for line in experiment.lines)
    if missing and not any(comparable.planned_differences(run, experiment) for run in compared):
        planned.append(plan(CONTROL, experiment.streams[0], setup.all_seeds[0]))
    return planned


def _shortest(method: str, preset: str) -> str:
    """Without its settings where they are what it has anyway, so that experiments share runs."""
    whole = compose(method, preset=preset)
    return whole.names if compose(whole.names, preset=preset) == whole else method


def chosen(experiment: Experiment, methods: Iterable[str]) -> Experiment:
    """The experiment with the lines of some methods only."""
    preset = experiment.benchmark.preset
    wanted = {method: compose(method, preset=preset) for method in methods}
    lines = [(line, compose(line.method, preset=preset)) for line in experiment.lines]
    for method, composition in wanted.items():
        if composition not in [composition for _, composition in lines]:
            raise ValueError(
                f"{experiment.id} has no line {method!r}; it has "
                f"{listed(dict.fromkeys(line.method for line, _ in lines), 99)}."
            )
    wanted_lines = tuple(line for line, composition in lines if composition in wanted.values())
    return replace(experiment, lines=wanted_lines)


# Numbers.


@dataclass(frozen=True)
class GridRow:
    """Numbers by column; what is not known has no cell."""

    label: str
    host: str | None = None
    """The label of the row that this one adds a plug-in to."""
    cells: dict[str, Number] = field(default_factory=dict)
    idle: set[str] = field(default_factory=set)
    """The columns in which its method hardly acted."""


@dataclass(frozen=True)
class Grid:
    """One table of an answer: ours, and what the paper prints of it."""

    measure: Measure
    columns: tuple[str, ...]
    summary: tuple[str, ...]
    rows: tuple[GridRow, ...]
    published: tuple[GridRow, ...]

    def changes(self, rows: tuple[GridRow, ...]) -> tuple[GridRow, ...]:
        """What plug-ins add to their hosts' numbers, as they come out: negative where they take.
        What differs from a host that hardly acted is no change."""
        hosts = {row.label: row for row in rows}
        changes = []
        for row in rows:
            if row.host in hosts:
                host = hosts[row.host]
                idle = row.idle | host.idle
                both = [n for n in self.columns if n in row.cells and n in host.cells]
                cells = {n: row.cells[n].minus(host.cells[n]) for n in both if n not in idle}
                changes.append(replace(row, cells=cells, idle=idle))
        return tuple(changes)


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


def evaluate(experiment: Experiment, folders: Mapping[Line, Sequence[RunFolder]]) -> Answer:
    """The numbers of finished runs. A line that has none stands in `missing`."""
    groups = {}
    for line, of_line in folders.items():
        if runs := tuple(StoredRun.of(folder) for folder in of_line if folder.finished):
            size = "" if line.batch is None else f" at batch size {line.batch}"
            groups[line] = Group(line.label + size, runs)
    present = [line for line in experiment.lines if line in groups]
    if not present:
        raise ValueError(f"No run of {experiment.id} is finished.")
    compared = [line for line in present if in_protocol(experiment, line)]
    control = [CONTROL] if CONTROL in groups and CONTROL not in present else []
    return Answer(
        experiment,
        tuple(_grid(experiment, MEASURES[name], groups) for name in experiment.measures),
        _facts(experiment, [run for line in present for run in groups[line].runs]),
        comparable.differences(
            experiment, [run for line in control + compared for run in groups[line].runs]
        ),
        tuple(line.label for line in experiment.lines if line not in present),
        {groups[line].label: groups[line].idle for line in present if groups[line].idle},
    )


def _grid(experiment: Experiment, measure: Measure, groups: Mapping[Line, Group]) -> Grid:
    ours: dict[str, GridRow] = {}
    papers: dict[str, GridRow] = {}
    for line in experiment.lines:
        host = experiment.host_of(line)
        empty = partial(GridRow, line.label, None if host is None else host.label)
        row = ours.setdefault(line.label, empty())
        if line in groups:
            numbers = _by_column(_numbers(measure, groups[line]), line)
            row.cells.update(numbers)
            row.idle.update(numbers if groups[line].idle else ())
        if numbers := _by_column(_printed(experiment, line, measure), line):
            papers.setdefault(line.label, empty()).cells.update(numbers)
    columns = tuple(dict.fromkeys(column for row in ours.values() for column in row.cells))
    summary = columns if any(line.batch for line in experiment.lines) else measure.summary
    return Grid(measure, columns, summary, tuple(ours.values()), tuple(papers.values()))


def _numbers(measure: Measure, group: Group) -> dict[str, Number]:
    """By column, as far as some run defines them."""
    by_column: dict[str, dict[str, float]] = {}
    for run in group.runs:
        for name, value in measure.read(run).items():
            by_column.setdefault(name, {})[run.key] = value
    numbers = {name: Number.over(by_run) for name, by_run in by_column.items()}
    return {name: number for name, number in numbers.items() if number}


def _by_column(numbers: Mapping[str, Number], line: Line) -> dict[str, Number]:
    return {str(line.batch or name): number for name, number in numbers.items()}


def _printed(experiment: Experiment, line: Line, measure: Measure) -> dict[str, Number]:
    """The paper's numbers of a line: those of tables, and those that the text states."""
    row = comparable.published_row(experiment, line)
    numbers = {}
    if row is not None:
        numbers = {name: Number(value) for name, value in measure.printed(row).items()}
        if row.std is not None and SIXTEEN in numbers:
            numbers[SIXTEEN] = Number(row.mean, row.std)
    for stated in experiment.printed.stated:
        name = stated.quantity.removeprefix("share ")
        if stated.method == line.method and name in measure.summary:
            numbers[name] = Number(stated.value)
    return numbers


def _facts(experiment: Experiment, runs: Sequence[StoredRun]) -> dict[str, str]:
    """Each in words, with all values where runs differ."""

    def all_of(fact: Callable[[StoredRun], object]) -> str:
        return listed(dict.fromkeys(str(fact(run)) for run in runs), 99)

    def machine(stored: StoredRun) -> str:
        used = stored.run.machine
        return f"{stored.manifest.machine['processor']}, {used.device}, threads {used.threads}"

    facts = {
        "data": all_of(lambda stored: stored.run.data.name),
        "model": all_of(lambda stored: comparable.model_name(stored.run)),
        "preset": all_of(lambda stored: stored.run.preset),
        "severity": all_of(lambda stored: stored.run.data.severity),
        "images a domain": all_of(comparable.images_a_domain),
        "images a batch": all_of(lambda stored: stored.batch_size),
        "window": all_of(lambda stored: stored.run.effective_window),
        "orders": f"{experiment.orders} random ones" if experiment.orders else "the paper's",
        "seeds": all_of(lambda stored: stored.seed),
        "machine": all_of(machine),
    }
    return {name: fact for name, fact in facts.items() if (name, fact) != ("window", "None")}
