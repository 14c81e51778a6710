"""Domains that come again: does a method get better with each visit, or fall?"""

from __future__ import annotations

import math

import polars as pl

from holdfast.results.comparison import Comparison
from holdfast.results.group import Group, Number, means_over
from holdfast.results.stored import StoredRun
from holdfast.results.table import Cell, Column, Row, Table

# Visits that a table has room for; of more, some are shown.
MOST = 8


def visit_table(comparison: Comparison) -> Table | None:
    """Accuracy by visit, over all domains of one; None where domains come but once, or not all of
    them each time."""
    groups = [group for group in comparison.groups if group.runs]
    runs = [run for group in groups for run in group.runs]
    visits = sorted({visit for run in runs for visit in by_visit(run)})
    if len(visits) < 2 or not all(_visits_are_alike(run) for run in runs):
        return None
    shown = sorted({visits[round(step * (len(visits) - 1) / (MOST - 1))] for step in range(MOST)})
    rows = []
    for group in groups:
        accuracy = {visit: _number(group, visit) for visit in visits}
        changed = accuracy[visits[-1]].minus(accuracy[visits[0]])
        mean = Number.over({group.which(run): _mean(by_visit(run)) for run in group.runs})
        texts = [
            *(accuracy[visit].text(1, spread=False) for visit in shown),
            mean.text(2),
            changed.text(1, sign="+"),
        ]
        rows.append(Row(group.label, tuple(map(Cell, texts)), group.label))
    columns = [
        *(Column(f"visit {visit + 1}") for visit in shown),
        Column(f"mean of {len(visits)}", "over all visits"),
        Column("last − first", "below 0: it has become worse from the first visit to the last"),
    ]
    caption = f"Accuracy by visit in %, {means_over(groups)}"
    return Table(caption, "method", tuple(columns), tuple(rows))


def by_visit(run: StoredRun) -> dict[int, float]:
    """Accuracy in %, of each visit the mean over its domains."""
    means = (
        run.batches.filter(pl.col("scored") > 0)
        .group_by("visit", "domain")
        .agg(pl.col("correct").sum() / pl.col("scored").sum())
        .group_by("visit")
        .agg(100 * pl.col("correct").mean())
    )
    return dict(means.sort("visit").iter_rows())


def _visits_are_alike(run: StoredRun) -> bool:
    """Whether each shows all domains; the last may still go on."""
    shown = run.batches.group_by("visit").agg(pl.col("domain").n_unique()).sort("visit")
    return shown["domain"][:-1].n_unique() <= 1 and len(shown) > 1


def _number(group: Group, visit: int) -> Number:
    return Number.over({group.which(r): by_visit(r).get(visit, math.nan) for r in group.runs})


def _mean(values: dict[int, float]) -> float:
    return sum(values.values()) / len(values) if values else math.nan
