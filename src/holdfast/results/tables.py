"""The tables of a comparison: accuracy by domain, and all else that is one number a method; and the
documents of them that are read at the end of runs, and at the end of a sweep."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from holdfast.bench.plan import short
from holdfast.bench.store import RunFolder
from holdfast.bench.sweep import CHOSEN, Point
from holdfast.data.readers.layouts import CLEAN
from holdfast.results.comparison import Comparison, compare
from holdfast.results.group import NONE, Group, Number, means_over, repeated_over
from holdfast.results.health import health_note
from holdfast.results.stored import IDLE, IDLE_NOTE, StoredRun
from holdfast.results.table import Block, Cell, Column, Heading, Mark, Row, Table
from holdfast.results.visits import visit_table
from holdfast.util.words import enumerated


@dataclass(frozen=True)
class PublishedNumbers:
    """What a paper prints of a method: numbers by metric, under the label that it has there."""

    label: str
    numbers: Mapping[str, Number]


@dataclass(frozen=True)
class PublishedRows:
    """What may stand beside ours, by group, and a sentence on whether and why not."""

    note: str = ""
    rows: Mapping[str, PublishedNumbers] = field(default_factory=dict)


def accuracy_table(
    comparison: Comparison,
    published: Mapping[str, PublishedNumbers] | None = None,
    *,
    means_first: bool = False,
) -> Table:
    """A row a method and a column a domain, as the paper has it; published rows under ours.
    `means_first`: where a table may be cut off at its right."""
    groups, means = comparison.groups, means_of(comparison.groups)
    by_domain = {
        f"accuracy/{name}": Column(short(name), name if short(name) != name else "")
        for name in comparison.domains
    }
    columns = {**means, **by_domain} if means_first else {**by_domain, **means}
    marks = {metric: _marks(groups, metric) for metric in columns}
    rows = []
    for group in groups:
        cells = tuple(
            Cell(
                group.number(metric).text(spread=metric in means),
                marks[metric].get(group.label, ""),
                _by_run(group, metric),
            )
            for metric in columns
        )
        rows.append(Row(group.label, cells, group.label, badges=badges(group)))
        theirs = (published or {}).get(group.label)
        if theirs is not None:
            printed = (theirs.numbers.get(metric, Number()) for metric in columns)
            texts = tuple(Cell(number.text()) for number in printed)
            rows.append(Row(f"{theirs.label}, published", texts, group.label, published=True))
    caption = f"Accuracy by domain in %, {means_over(groups)}"
    return Table(caption, "method", tuple(columns.values()), tuple(rows))


def means_of(groups: Iterable[Group]) -> dict[str, Column]:
    """The means over domains, and what a table calls them; one where no clean images are among
    the domains."""
    domains = [{*group.domains} for group in groups if group.runs]
    corrupted = [names - {CLEAN} for names in domains]
    means = {"mean_accuracy": Column(f"mean of {_counts(domains)}", "over all domains")}
    if corrupted != domains and any(corrupted):
        name = f"mean of {_counts(corrupted)}"
        means["mean_accuracy_corrupted"] = Column(name, "without clean images")
    return means


def _counts(domains: Iterable[set[str]]) -> str:
    return "/".join(map(str, sorted({len(names) for names in domains})))


def badges(group: Group) -> tuple[str, ...]:
    """What a reader has to know before believing its numbers."""
    badges = [*((CHOSEN,) * group.chosen), *idle_badge(group)]
    if not group.finished:
        done = sum(run.done for run in group.runs)
        planned = sum(run.manifest.batches or run.done for run in group.runs)
        badges.append(f"{done:,} of {planned:,} batches so far")
    return tuple(badges)


def idle_badge(group: Group) -> tuple[str, ...]:
    return (f"{IDLE}: {group.idle}",) if group.idle else ()


def _by_run(group: Group, metric: str) -> str:
    """Each run's number, where there are several."""
    values = ((run, run.metric(metric)) for run in group.runs if len(group.runs) > 1)
    return ", ".join(f"{group.which(run)}: {v:.2f}" for run, v in values if not math.isnan(v))


def _marks(groups: Sequence[Group], metric: str) -> dict[str, Mark]:
    """Best and second best as they are printed, of the methods that are through and acted."""
    acted = (group for group in groups if group.finished and not group.idle)
    scores = {group.label: round(group.mean(metric), 2) for group in acted}
    ranked = sorted({score for score in scores.values() if not math.isnan(score)}, reverse=True)
    if len(ranked) < 2:
        return {}
    ranks: dict[float, Mark] = {ranked[0]: "best", ranked[1]: "second"}
    return {label: ranks[score] for label, score in scores.items() if score in ranks}


@dataclass(frozen=True)
class Metric:
    """A column of the table of metrics."""

    name: str
    column: Column
    scale: float = 1
    digits: int = 1
    spread: bool = False
    """Whether seeds move it."""
    brief: bool = False
    """Whether it stands in the short table too, which a terminal shows."""
    rare: bool = False
    """Worth a column only where there is any."""


_ECE = "expected calibration error over {} bins"
METRICS = (
    Metric("ece_15", Column("ECE %", _ECE.format(15)), 100, spread=True, brief=True),
    Metric("ece_20", Column("ECE, 20 bins %", _ECE.format(20)), 100),
    Metric(
        "bias",
        Column("bias %", "share of predictions to change for balance"),
        100,
        spread=True,
        brief=True,
    ),
    Metric(
        "share_above_0.95",
        Column("% > 0.95", "predictions above 0.95 confidence"),
        100,
        spread=True,
        brief=True,
    ),
    Metric("entropy", Column("entropy", "mean, in nats"), digits=3, spread=True),
    Metric(
        "time_median", Column("ms a batch", "median time of a batch"), 1000, spread=True, brief=True
    ),
    Metric("time_p95", Column("p95", "95 % of batches took no longer, in ms"), 1000, brief=True),
    Metric("time_images_per_second", Column("images/s"), digits=0, brief=True),
    Metric("memory_peak", Column("MB", "the most memory in use"), digits=0, brief=True),
    Metric("forwards", Column("forwards", "a batch"), digits=2),
    Metric("backwards", Column("backwards", "a batch"), digits=2),
    Metric("step_rate", Column("steps %", "of the steps that it could have taken"), 100),
    Metric(
        "estimate_error",
        Column("estimate off by", "mean over domains of |estimated − true accuracy|, in points"),
        brief=True,
        spread=True,
    ),
    Metric(
        "unhealthy",
        Column("unhealthy %", "batches after which adapting seemed to do harm, or had collapsed"),
        100,
        rare=True,
    ),
    Metric(
        "fallback", Column("fallback %", "batches that the source model answered"), 100, rare=True
    ),
    Metric("reliable", Column("reliable %", "images that the method relies on"), 100),
    Metric("missed", Column("missed", "batches that came while it was busy"), digits=0, rare=True),
    Metric("refused", Column("refused", "batches whose loss was not finite"), digits=0, rare=True),
    Metric("intruders", Column("intruders", "images of no class"), digits=0, rare=True),
    Metric("intruders_confidence", Column("their confidence %"), 100, rare=True),
)


def metrics_table(groups: Sequence[Group], *, brief: bool = False) -> Table:
    """A row a method; `brief`: the mean accuracies, and what is looked at most."""
    repeats = repeated_over(groups)
    means = [Metric(*mean, digits=2, spread=True) for mean in means_of(groups).items()]
    wanted = (metric for metric in METRICS if metric.brief or not brief)
    shown = [
        *(means if brief else ()),
        *(metric for metric in wanted if _is_worth_it(groups, metric)),
    ]
    runs = Column("runs", repeats) if " " in repeats else Column(repeats)
    collapse = Column("collapse", "the first batch at which predictions fell into a few classes")
    return Table(
        f"Metrics of each method, {means_over(groups)}",
        "method",
        (runs, *(metric.column for metric in shown), collapse),
        tuple(
            Row(
                group.label,
                (
                    Cell(str(len(group.runs))),
                    *(cell(group, metric) for metric in shown),
                    Cell(_collapse(group)),
                ),
                group.label,
                badges=badges(group),
            )
            for group in groups
        ),
    )


def _is_worth_it(groups: Iterable[Group], metric: Metric) -> bool:
    values = [value for group in groups for value in group.values(metric.name)]
    return any(values) if metric.rare else bool(values)


def cell(group: Group, metric: Metric) -> Cell:
    number = group.number(metric.name).times(metric.scale)
    return Cell(number.text(metric.digits, spread=metric.spread))


def _collapse(group: Group) -> str:
    batches = group.values("collapse")
    return f"batch {min(batches):.0f}" if batches else NONE


# What a reader has to be told beside the tables.


def idle_note(groups: Iterable[Group]) -> str:
    """What is meant where a row says that its method hardly acted; empty where none does."""
    return IDLE_NOTE if any(group.idle for group in groups) else ""


def notes(groups: Collection[Group]) -> Iterator[str]:
    """What is meant where a row says that its method hardly acted; and whose answers are scores,
    beside which stand the probabilities of others."""
    yield from filter(None, [idle_note(groups)])
    corrects = dict.fromkeys(group.label for group in groups if group.uncorrected)
    if corrects:
        yield (
            f"{enumerated(list(corrects))}: what leaves are corrected scores, whose softmax are no "
            "probabilities. Accuracy is theirs; confidence, entropy and calibration are of the "
            "logits before the correction."
        )


def alarm_lines(comparison: Comparison) -> Iterator[str]:
    """A sentence for each method that collapsed."""
    for group in comparison.groups:
        collapsed = [run for run in group.runs if not math.isnan(run.metric("collapse"))]
        if collapsed:
            at = ", ".join(f"{r.metric('collapse'):.0f} ({group.which(r)})" for r in collapsed)
            yield (
                f"{group.label}: predictions fell into a few classes at batch {at}; "
                f"{len(collapsed)} of {len(group.runs)} runs."
            )


# Documents.


def run_document(folders: Iterable[RunFolder]) -> list[Block]:
    """Accuracy by domain, and a line of metrics for each method."""
    blocks: list[Block] = []
    for comparison in compare(map(StoredRun.of, folders)):
        blocks += [
            Heading(_heading(comparison)),
            accuracy_table(comparison),
            *filter(None, [visit_table(comparison)]),
            metrics_table(comparison.groups, brief=True),
            *notes(comparison.groups),
            *filter(None, [health_note(comparison.groups)]),
        ]
    return blocks


def _heading(comparison: Comparison) -> str:
    """What they were run on."""
    first, seeds = comparison.groups[0].first, len(comparison.groups[0].runs)
    run = first.run
    facts = [
        Path(run.data.name).name,
        Path(run.model.name.split(":")[-1]).name if run.model.name else "",
        first.manifest.stream,
        f"{first.manifest.images} images",
        f"window {run.effective_window}" if run.effective_window else "",
        f"preset {run.preset}" if run.preset else "",
        f"{seeds} seed{'s' * (seeds > 1)}",
    ]
    return ", ".join(filter(None, facts))


Place: TypeAlias = tuple[str, ...]
"""In a sweep: a value for each of its axes."""


def sweep_document(points: Sequence[Point], folders: Sequence[RunFolder | None]) -> list[Block]:
    """A line for each point of the sweep: means over its seeds ± standard deviation. Of learning
    rates, it says which is the method's own and which the best."""
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
        marks = ["default"] * (not chosen[place]) + ["best"] * (place in (best or ()))
        texts = [*place[1:], *([", ".join(marks)] if best else []), str(len(group.runs))]
        cells = (*map(Cell, texts), *(cell(group, metric) for metric in metrics))
        rows.append(Row(group.label, cells, badges=idle_badge(group)))
    columns = (
        *(Column(word, is_text=True) for word in words),
        Column("seeds"),
        *(metric.column for metric in metrics),
    )
    table = Table("Means ± standard deviation over seeds", axes[0], columns, tuple(rows))
    rate = "Which learning rate is best is known from the stream's labels alone." if best else ""
    return [table, *notes(groups.values()), *filter(None, [rate])]


def _best(groups: Mapping[Place, Group], chosen: Mapping[Place, bool], rate: int) -> set[Place]:
    """Among combinations that differ in the learning rate alone, the best at which the method
    acted; the default, if none is better."""
    rivals: dict[Place, list[Place]] = {}
    for place, group in groups.items():
        if group.values("mean_accuracy") and not group.idle:
            rivals.setdefault(place[:rate] + place[rate + 1 :], []).append(place)
    scores = {p: (group.mean("mean_accuracy"), not chosen[p]) for p, group in groups.items()}
    return {max(places, key=scores.__getitem__) for places in rivals.values()}
