"""What is read at the end of runs, and at the end of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from holdfast.bench.store import RunFolder
from holdfast.bench.sweep import CHOSEN, Point
from holdfast.results.comparison import Comparison, compare
from holdfast.results.group import Group
from holdfast.results.stored import StoredRun
from holdfast.results.table import Block, Cell, Column, Heading, Row, Table
from holdfast.results.tables import (
    METRICS,
    Metric,
    accuracy_table,
    cell,
    idle_badge,
    idle_note,
    means_of,
    metrics_table,
)


def run_document(folders: Iterable[RunFolder]) -> list[Block]:
    """Accuracy by domain, and a line of metrics for each method."""
    blocks: list[Block] = []
    for comparison in compare(map(StoredRun.of, folders)):
        blocks += [
            Heading(_heading(comparison)),
            accuracy_table(comparison),
            metrics_table(comparison.groups, brief=True),
            *filter(None, [idle_note(comparison.groups)]),
        ]
    return blocks


def _heading(comparison: Comparison) -> str:
    """What they were run on."""
    first, seeds = comparison.groups[0].first, len(comparison.groups[0].runs)
    run = first.run
    facts = [
        Path(run.data.name).name,
        Path(run.model.name.split(":")[-1]).name if run.model.name else "",
        first.stream,
        f"{first.manifest.images} images",
        f"window {run.effective_window}" if run.effective_window else "",
        f"preset {run.preset}" if run.preset else "",
        f"{seeds} seed{'s' * (seeds > 1)}",
    ]
    return ", ".join(filter(None, facts))


Place: TypeAlias = tuple[str, ...]
"""In a sweep: a value for each of its axes."""


def sweep_document(points: Sequence[Point], folders: Sequence[RunFolder | None]) -> list[Block]:
    """A line for each place of the sweep: means over its seeds ± standard deviation. Of learning
    rates, which is the method's own and which the best."""
    axes = list(dict.fromkeys(name for point in points for name in point.at))
    runs: dict[Place, list[StoredRun]] = {}
    chosen = {}
    for point, folder in zip(points, folders, strict=True):
        place = tuple(point.at.get(name, "") for name in axes)
        runs.setdefault(place, []).extend([] if folder is None else [StoredRun.of(folder)])
        chosen[place] = CHOSEN in point.run.tags
    groups = {place: Group(place[0], tuple(of_place)) for place, of_place in runs.items()}
    best = _best(groups, chosen, axes.index("lr")) if "lr" in axes else None
    metrics = [
        *(Metric(*mean, digits=2, spread=True) for mean in means_of(groups.values()).items()),
        *(metric for metric in METRICS if metric.name in ("ece_15", "bias")),
    ]
    words = [*axes[1:], *(["this lr is"] if best else [])]
    rows = []
    for place, group in groups.items():
        which = ["default"] * (not chosen[place]) + ["best"] * (place in (best or ()))
        texts = [*place[1:], *([", ".join(which)] if best else []), str(len(group.runs))]
        cells = (*map(Cell, texts), *(cell(group, metric) for metric in metrics))
        rows.append(Row(group.label, cells, badges=idle_badge(group)))
    columns = (
        *(Column(word, is_text=True) for word in words),
        Column("seeds"),
        *(metric.column for metric in metrics),
    )
    table = Table("Means ± standard deviation over seeds", axes[0], columns, tuple(rows))
    rate = "Which learning rate is best is known from the stream's labels alone." if best else ""
    return [table, *filter(None, [idle_note(groups.values()), rate])]


def _best(groups: Mapping[Place, Group], chosen: Mapping[Place, bool], rate: int) -> set[Place]:
    """Of the places that differ in the learning rate alone, the best ones at which the method
    acted; the default, if none is better."""
    rivals: dict[Place, list[Place]] = {}
    for place, group in groups.items():
        if group.values("mean_accuracy") and not group.idle:
            rivals.setdefault(place[:rate] + place[rate + 1 :], []).append(place)
    scores = {p: (group.mean("mean_accuracy"), not chosen[p]) for p, group in groups.items()}
    return {max(places, key=scores.__getitem__) for places in rivals.values()}
