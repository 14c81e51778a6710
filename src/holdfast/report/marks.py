"""What charts are put together from: layers under and over lines, axes, and what hovering shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import altair as alt

from holdfast.report.charts import IS_SHOWN, MUTED, WIDE_HEIGHT, base

# Of more labels than these on an axis some are left out.
MANY = 20

_ALARM = [
    alt.Tooltip("method:N"),
    alt.Tooltip("run:N"),
    alt.Tooltip("batch:Q", title="collapse alarm at batch"),
    alt.Tooltip("domain:N"),
]
_TITLES = {
    "seen": "images seen",
    "images": "images",
    "confidence": "mean confidence, %",
    "bin": "confidence",
    "time_mean": "mean, ms",
    "ece_20": "ECE (20 bins), %",
}


def boundaries(data: str, axis: alt.Axis) -> Any:
    """Where a domain begins. The axis is that of the lines, since layers share it."""
    rules = base(data).transform_filter("datum.start > 0")
    return rules.mark_rule(color=MUTED, opacity=0.45, strokeWidth=1).encode(
        x=alt.X("start:Q", axis=axis)
    )


def domain_axis(names: Sequence[str], middles: Sequence[float]) -> alt.Axis:
    """An axis that names each domain at its middle; names go in as literals."""
    at, words = json.dumps(list(middles)), json.dumps(list(names))
    return alt.Axis(
        values=list(middles),
        labelExpr=f"{words}[indexof({at}, datum.value)]",
        grid=False,
        ticks=False,
        labelAngle=-45,
        labelOverlap=len(names) > MANY,
        title=None,
    )


def level(data: str, y: str, title: str) -> Any:
    """A line across at the mean of a column."""
    return (
        base(data)
        .transform_aggregate(level=f"mean({y})")
        .mark_rule(color=MUTED, strokeDash=[4, 4], strokeWidth=1.5)
        .encode(y=alt.Y("level:Q"), tooltip=[alt.Tooltip("level:Q", title=title, format=".1f")])
    )


def diagonal() -> Any:
    """Where accuracy is what confidence says."""
    ends = alt.sequence(0, 101, 100, as_="at")  # the page replaces data that have a name
    return (
        alt.Chart(ends)
        .mark_line(color=MUTED, strokeDash=[4, 4], strokeWidth=1.5)
        .encode(x="at:Q", y="at:Q")
    )


def crosses(data: str, axis: alt.Axis) -> Any:
    """Alarms, at the foot of the chart."""
    return (
        base(data)
        .transform_filter(IS_SHOWN)
        .mark_text(text="✕", fontSize=14, fontWeight="bold", color="#d55e00", dy=-8)
        .encode(x=alt.X("seen:Q", axis=axis), y=alt.value(WIDE_HEIGHT), tooltip=_ALARM)
    )


def along(order: Sequence[str]) -> alt.X:
    axis = alt.Axis(labelAngle=-45, labelOverlap=len(order) > MANY, grid=False)
    return alt.X("domain:N", sort=list(order), title=None, axis=axis)


def tips(
    column: str, title: str, digits: str, *others: str, std: str | None = None
) -> list[alt.Tooltip]:
    """The method, the metric with its spread, and what else places the mark."""
    lines = [alt.Tooltip("method:N"), alt.Tooltip(f"{column}:Q", title=title, format=digits)]
    if std is not None:
        lines.append(alt.Tooltip(f"{std}:Q", title="± over runs", format=digits))
    for other in others:
        name, _, kind = other.partition(":")
        whole = name in ("seen", "images")
        form = alt.Undefined if kind == "N" else ",.0f" if whole else ".2f"
        lines.append(alt.Tooltip(other, title=_TITLES.get(name, name), format=form))
    return lines
