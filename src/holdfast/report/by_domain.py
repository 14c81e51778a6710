"""Charts of one metric, domain by domain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import altair as alt
import polars as pl

from holdfast.report import chart_data
from holdfast.report.charts import Charts, along_domains, tips
from holdfast.report.figure import Figure
from holdfast.results.comparison import Comparison


@dataclass(frozen=True)
class Metric:
    """A column of a table, as a chart of it domain by domain has it."""

    column: str
    title: str
    caption: str
    unit: str
    """On the axis, and on hover unless `spoken` is given."""
    spoken: str = ""
    digits: str = ".2f"
    others: tuple[str, ...] = ()
    """What hovering shows besides."""
    zero: bool = True
    """Whether the axis begins there."""


BIAS = Metric(
    "bias",
    "Bias, domain by domain",
    "The share of predictions to change for each class to come as often as it is there.",
    "bias, %",
)
ENTROPY = Metric(
    "entropy", "Entropy, domain by domain", "Mean over a domain's images.", "entropy, nats"
)
TIME = Metric(
    "time",
    "Time of a batch, domain by domain",
    "Median over a domain's batches of what the method's step takes.",
    "time of a batch, ms",
    others=("time_mean:Q",),
)
DISTANCES = {
    "gap": ("Gap to the source", "From the source's prototype of a class to the true one here."),
    "intra": ("Distance within classes", "From a class's mean to its images."),
    "inter": ("Distance between classes", "From a class's mean to those of other classes."),
    "ratio": ("Ratio, within to between", "Less is better: classes are easier to tell apart."),
}
SIMILARITIES = {
    "similarity_source": (
        "Similarity to the source's prototypes",
        "Cosine of the method's prototypes and the source's, at the end of each domain.",
    ),
    "similarity_target": (
        "Similarity to the true prototypes",
        "Cosine of the method's prototypes and the true means of classes.",
    ),
}


def by_domain(table: pl.DataFrame, charts: Charts, metric: Metric) -> Iterator[Figure]:
    """Of the table that `chart_data.by_domain` makes, where there are domains to compare."""
    if len(table) and table.drop_nulls(metric.column)["domain"].n_unique() > 1:
        yield _figure(f"{metric.column}-by-domain", charts, metric, "by-domain", table)


def geometry_figures(comparison: Comparison, charts: Charts) -> Iterator[Figure]:
    """Where features lie, of the runs that were made with an analysis."""
    table = chart_data.geometry(comparison)
    for column, (title, caption) in (DISTANCES | SIMILARITIES).items():
        if len(table) and table[column].drop_nulls().len():
            near = column in SIMILARITIES
            unit = "cosine" if near else column
            metric = Metric(column, title, caption, unit, title.lower(), ".3f", zero=not near)
            yield _figure(column.replace("_", "-"), charts, metric, "geometry", table)


def _figure(name: str, charts: Charts, metric: Metric, data: str, table: pl.DataFrame) -> Figure:
    column, spoken = metric.column, metric.spoken or metric.unit
    spec = charts.lines(
        data,
        along_domains(table["domain"].unique(maintain_order=True).to_list()),
        alt.Y(f"{column}:Q", title=metric.unit, scale=alt.Scale(zero=metric.zero)),
        tips(column, spoken, metric.digits, "domain:N", *metric.others, std=f"{column}_std"),
    )
    return Figure(name, metric.title, metric.caption, spec, {data: table})
