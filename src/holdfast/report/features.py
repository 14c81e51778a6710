"""Where features lie: distances of classes, and similarities of prototypes, domain by domain."""

from __future__ import annotations

from collections.abc import Iterator

import altair as alt

from holdfast.report import chart_data
from holdfast.report.charts import Charts
from holdfast.report.figure import Figure
from holdfast.report.marks import along, tips
from holdfast.results.comparison import Comparison

_GEOMETRY = {
    "gap": ("Gap to the source", "From the source's prototype of a class to the true one here."),
    "intra": ("Distance within classes", "From a class's mean to its images."),
    "inter": ("Distance between classes", "From a class's mean to those of other classes."),
    "ratio": ("Ratio, within to between", "Less is better: classes are easier to tell apart."),
    "similarity_source": (
        "Similarity to the source's prototypes",
        "Cosine of the method's prototypes and the source's, at the end of each domain.",
    ),
    "similarity_target": (
        "Similarity to the true prototypes",
        "Cosine of the method's prototypes and the true means of classes.",
    ),
}


def feature_figures(comparison: Comparison, charts: Charts, prefix: str) -> Iterator[Figure]:
    """Of the runs that were made with an analysis."""
    table = chart_data.geometry(comparison)
    if table.is_empty():
        return
    order = table["domain"].unique(maintain_order=True).to_list()
    for figure, (title, caption) in _GEOMETRY.items():
        if table[figure].drop_nulls().is_empty():
            continue
        similar = figure.startswith("similarity")
        yield Figure(
            prefix + figure.replace("_", "-"),
            title,
            caption,
            charts.lines(
                prefix + "geometry",
                along(order),
                alt.Y(
                    f"{figure}:Q",
                    title="cosine" if similar else figure,
                    scale=alt.Scale(zero=not similar),
                ),
                tips(figure, title.lower(), ".3f", "domain:N", std=f"{figure}_std"),
            ),
            {prefix + "geometry": table},
        )
