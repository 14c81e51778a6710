"""The page's tables as values, which HTML, Markdown and LaTeX write down."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.bench.names import short
from holdfast.bench.sweep import CHOSEN
from holdfast.data.readers.layouts import CLEAN
from holdfast.paper.published import PublishedRow
from holdfast.results.acting import IDLE, MEANING
from holdfast.results.compare import Comparison, Group, over
from holdfast.results.results import spread

NONE = "–"


@dataclass(frozen=True)
class Cell:
    text: str
    mark: Literal["", "best", "second"] = ""
    title: str = ""
    """More of it, on hover."""


@dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[Cell, ...]
    method: str | None = None
    """The group that it is of."""
    published: bool = False
    badges: tuple[str, ...] = ()
    """What a reader has to know before believing it."""


@dataclass(frozen=True)
class Column:
    text: str
    full: str = ""


@dataclass(frozen=True)
class Table:
    caption: str
    corner: str
    """What its rows are."""
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def signs(self) -> list[int]:
        """How wide each column is; headings are broken between words."""
        return [
            max(*map(len, column.text.split()), *(len(row.cells[place].text) for row in self.rows))
            for place, column in enumerate(self.columns)
        ]

    def fold(self, width: Callable[[int], float], room: float) -> list[Table]:
        """In as many tables as it takes for their columns to fit; `width`: of so many signs."""
        bands: list[list[int]] = [[]]
        left = room
        for place, signs in enumerate(self.signs()):
            left -= width(signs)
            if left < 0 and bands[-1]:
                bands.append([])
                left = room - width(signs)
            bands[-1].append(place)
        return [
            replace(
                self,
                caption=f"{self.caption}{', continued' if number else ''}",
                columns=tuple(self.columns[place] for place in band),
                rows=tuple(
                    replace(row, cells=tuple(row.cells[place] for place in band))
                    for row in self.rows
                ),
            )
            for number, band in enumerate(bands)
        ]


def badges(group: Group) -> tuple[str, ...]:
    found = [CHOSEN] if group.chosen else []
    if group.idle:
        found.append(f"{IDLE}: {group.idle}")
    if not group.finished:
        done = sum(one.done for one in group.runs)
        planned = sum(one.planned or one.done for one in group.runs)
        found.append(f"{done:,} of {planned:,} batches so far")
    return tuple(found)


# Accuracy by domain.


def accuracy_table(
    comparison: Comparison,
    published: Mapping[str, PublishedRow] | None = None,
    *,
    means_first: bool = False,
) -> Table:
    """A row a method and a column a domain, as the paper has it; published rows under ours.
    `means_first`: where a table may be cut off at its right."""
    domains, means = comparison.domains, _means(comparison.domains)
    by_domain = {
        f"accuracy/{name}": Column(short(name), name if short(name) != name else "")
        for name in domains
    }
    over_all = {key: Column(f"mean of {count}", full) for key, (count, full) in means.items()}
    columns = {**over_all, **by_domain} if means_first else {**by_domain, **over_all}
    keys = list(columns)
    marks = {key: _marks(comparison.groups, key) for key in keys}
    rows = []
    for group in comparison.groups:
        cells = (
            Cell(_accuracy(group, key, key in means), marks[key].get(group.label, ""), title)
            for key, title in ((key, _by_seed(group, key)) for key in keys)
        )
        rows.append(Row(group.label, tuple(cells), group.label, badges=badges(group)))
        theirs = (published or {}).get(group.label)
        if theirs is not None:
            rows.append(_published(group, theirs, keys))
    seeds = {len(one.runs) for one in comparison.groups}
    many = max(seeds, default=1) > 1
    means_over = f"means ± standard deviation over {over(comparison.groups)}"
    return Table(
        f"Accuracy by domain in %, {means_over if many else 'one seed'}",
        "method",
        tuple(columns.values()),
        tuple(rows),
    )


def _means(domains: Sequence[str]) -> dict[str, tuple[int, str]]:
    """By figure: over how many domains, and which."""
    found = {"mean_accuracy": (len(domains), "over all domains")}
    if CLEAN in domains and len(domains) > 1:
        found["mean_accuracy_corrupted"] = (len(domains) - 1, "without clean images")
    return found


def _accuracy(group: Group, key: str, with_spread: bool) -> str:
    return spread(group.mean(key), group.std(key) if with_spread else math.nan)


def _by_seed(group: Group, key: str) -> str:
    if len(group.runs) < 2:
        return ""
    return ", ".join(
        f"{group.which(one)}: {one.figure(key):.2f}"
        for one in group.runs
        if not math.isnan(one.figure(key))
    )


def _marks(groups: Sequence[Group], key: str) -> dict[str, Literal["", "best", "second"]]:
    """Best and second best as they are printed, of the methods that are through and acted."""
    known_of = (one for one in groups if one.finished and not one.idle)
    scores = {one.label: round(one.mean(key), 2) for one in known_of}
    known = sorted({one for one in scores.values() if not math.isnan(one)}, reverse=True)
    if len(known) < 2:
        return {}
    ranks: dict[float, Literal["best", "second"]] = {known[0]: "best", known[1]: "second"}
    return {label: ranks[score] for label, score in scores.items() if score in ranks}


def _published(group: Group, theirs: PublishedRow, keys: Sequence[str]) -> Row:
    values = {f"accuracy/{name}": value for name, value in theirs.by_domain.items()}
    corrupted = [value for name, value in theirs.by_domain.items() if name != CLEAN]
    values["mean_accuracy"] = theirs.mean
    if corrupted:
        values["mean_accuracy_corrupted"] = sum(corrupted) / len(corrupted)
    cells = []
    for key in keys:
        std = theirs.std if key == "mean_accuracy" and theirs.std is not None else math.nan
        cells.append(Cell(spread(values.get(key, math.nan), std)))
    return Row(f"{theirs.label}, published", tuple(cells), group.label, published=True)


# All else that is one number a method.


@dataclass(frozen=True)
class _Figure:
    name: str
    column: Column
    scale: float = 1
    digits: int = 1
    spread: bool = False
    """Whether seeds move it."""


_FIGURES = (
    _Figure("ece_15", Column("ECE %", "expected calibration error over 15 bins"), 100, spread=True),
    _Figure("ece_20", Column("ECE, 20 bins %", "expected calibration error over 20 bins"), 100),
    _Figure(
        "bias", Column("bias %", "share of predictions to change for balance"), 100, spread=True
    ),
    _Figure(
        "share_above_0.95",
        Column("% > 0.95", "predictions above 0.95 confidence"),
        100,
        spread=True,
    ),
    _Figure("entropy", Column("entropy", "mean, in nats"), digits=3, spread=True),
    _Figure("time_median", Column("ms a batch", "median time of a batch"), 1000, spread=True),
    _Figure("time_p95", Column("p95", "95 % of batches took no longer, in ms"), 1000),
    _Figure("time_images_per_second", Column("images/s"), digits=0),
    _Figure("memory_peak", Column("MB", "the most memory in use"), digits=0),
    _Figure("forwards", Column("forwards", "a batch"), digits=2),
    _Figure("backwards", Column("backwards", "a batch"), digits=2),
    _Figure("step_rate", Column("steps %", "of the steps that it could have taken"), 100),
    _Figure("reliable", Column("reliable %", "images that the method relies on"), 100),
    _Figure("missed", Column("missed", "batches that came while it was busy"), digits=0),
    _Figure("refused", Column("refused", "batches whose loss was not finite"), digits=0),
    _Figure("intruders", Column("intruders", "images of no class"), digits=0),
    _Figure("intruders_confidence", Column("their confidence %"), 100),
)
# Worth a column only where there is any.
_RARE = {"missed", "refused", "intruders", "intruders_confidence"}


def figures_table(comparison: Comparison) -> Table:
    """A row a method."""
    shown = [one for one in _FIGURES if _is_told(comparison, one.name)]
    rows = [
        Row(
            group.label,
            (
                Cell(str(len(group.runs))),
                *(_figure(group, one) for one in shown),
                Cell(_collapse(group)),
            ),
            group.label,
            badges=badges(group),
        )
        for group in comparison.groups
    ]
    repeats = over(comparison.groups)
    return Table(
        f"Figures of each method, means ± standard deviation over {repeats}",
        "method",
        (
            Column("runs", repeats) if " " in repeats else Column(repeats),
            *(one.column for one in shown),
            Column("collapse", "the first batch at which predictions fell into a few classes"),
        ),
        tuple(rows),
    )


def _is_told(comparison: Comparison, figure: str) -> bool:
    values = [value for one in comparison.groups for value in one.values(figure)]
    return any(values) if figure in _RARE else bool(values)


def _figure(group: Group, one: _Figure) -> Cell:
    std = group.std(one.name) if one.spread else math.nan
    return Cell(spread(one.scale * group.mean(one.name), one.scale * std, one.digits))


def _collapse(group: Group) -> str:
    found = group.values("collapse")
    return f"batch {min(found):.0f}" if found else NONE


def idle_note(comparison: Comparison) -> str:
    """What is meant where a row says that its method hardly acted; empty where none does."""
    if not any(one.idle for one in comparison.groups):
        return ""
    return f"{IDLE[0].upper()}{IDLE[1:]}: {MEANING}."


def alarm_lines(comparison: Comparison) -> Iterator[str]:
    """A sentence for each method that collapsed."""
    for group in comparison.groups:
        found = [one for one in group.runs if not math.isnan(one.figure("collapse"))]
        if found:
            at = ", ".join(f"{one.figure('collapse'):.0f} ({group.which(one)})" for one in found)
            yield (
                f"{group.label}: predictions fell into a few classes at batch {at}; "
                f"{len(found)} of {len(group.runs)} runs."
            )
