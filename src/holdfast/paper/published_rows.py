"""Published numbers, where they may stand beside ours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from holdfast.paper.comparable import CONTROL, differences, published_row
from holdfast.paper.experiments import Experiment, Line, experiments
from holdfast.paper.measures import FIFTEEN, printed_means
from holdfast.paper.published import Benchmark, PublishedRow, PublishedTable
from holdfast.recipes.compose import compose
from holdfast.results.comparison import Comparison, short_data
from holdfast.results.numbers import Number
from holdfast.results.stored import StoredRun
from holdfast.results.tables import PublishedNumbers, PublishedRows
from holdfast.util.words import enumerated


def published_rows(comparison: Comparison) -> PublishedRows:
    found = _published_rows(comparison)
    return replace(found, note=f"{found.note} {comparison.caveat}".strip())


def _published_rows(comparison: Comparison) -> PublishedRows:
    runs = {
        group.label: [run for run in group.runs if _can_be_compared(run)]
        for group in comparison.groups
    }
    known = [run for of_group in runs.values() for run in of_group]
    if not known and any(run.finished for run in comparison.runs):
        return PublishedRows("None of these runs can stand beside published numbers.")
    if not known:
        return PublishedRows("No run is finished, so none stands beside published numbers.")
    data = known[0].run.data.name
    tables = [one for one in _tables() if one.benchmark.data == data]
    if not tables:
        name = short_data(data)
        return PublishedRows(f"The paper has no numbers on {name}, so none stand beside these.")
    tried = [_try(table, runs) for table in tables]
    return max(tried, key=lambda one: len(one.rows))


def _tables() -> Iterable[Experiment]:
    """The paper's, one for each benchmark and kind of stream."""
    found: dict[tuple[Benchmark, str], Experiment] = {}
    for one in experiments().values():
        if isinstance(one.printed, PublishedTable) and one.printed.of_paper:
            found.setdefault((one.benchmark, one.stream), one)
    return found.values()


def _try(experiment: Experiment, runs: Mapping[str, list[StoredRun]]) -> PublishedRows:
    frozen = compose(CONTROL.method, preset=experiment.benchmark.preset)
    controls = [one for each in runs.values() for one in each if one.run.composition == frozen]
    rows: dict[str, PublishedNumbers] = {}
    reasons: dict[str, None] = {}
    for label, each in runs.items():
        if not each:
            continue
        same = [one for one in controls if one.manifest.code == each[0].manifest.code]
        apart = differences(experiment, [*(same or controls), *each])
        reasons |= dict.fromkeys(apart)
        row = None if apart else published_row(experiment, Line(label, each[0].run.method))
        if row is not None:
            rows[label] = _numbers(row)
    if rows:
        rest = f" For the others: {enumerated(list(reasons)[:4])}." if reasons else ""
        return PublishedRows(
            f"Published numbers are the paper's ({experiment.where}): data, model and protocol "
            f"are the same, and the model that never adapts scores what the paper says.{rest}",
            rows,
        )
    if reasons:
        why = enumerated(list(reasons)[:4])
        return PublishedRows(f"Not comparable with the paper's {experiment.where}: {why}.")
    return PublishedRows(f"The paper's {experiment.where} has none of these methods.")


def _numbers(row: PublishedRow) -> PublishedNumbers:
    numbers = {f"accuracy/{name}": Number(value) for name, value in row.by_domain.items()}
    numbers["mean_accuracy"] = Number(row.mean, math.nan if row.std is None else row.std)
    if FIFTEEN in (means := printed_means(row)):
        numbers["mean_accuracy_corrupted"] = Number(means[FIFTEEN])
    return PublishedNumbers(row.label, numbers)


def _can_be_compared(run: StoredRun) -> bool:
    """Whether the benchmark's own rules can be asked about it: its manifest holds what a run's
    does."""
    manifest = run.manifest
    try:
        written = run.run
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return False
    return (
        manifest.finished
        and isinstance(written.data.name, str)
        and isinstance(written.model.name, str | None)
        and {"data", "model"} <= set(manifest.hashes)
        and bool(manifest.order)
        and bool(run.by_domain("accuracy"))
    )
