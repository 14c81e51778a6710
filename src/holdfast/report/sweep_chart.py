"""The chart of a sweep: accuracy along one setting, with error bars over seeds."""

from __future__ import annotations

import altair as alt

from holdfast.report.charts import HEIGHT, IS_SHOWN, MUTED, Charts, Spec, base, spread
from holdfast.report.palette import DASHES
from holdfast.report.sweeps import Axis


def sweep_chart(charts: Charts, data: str, axis: Axis) -> Spec:
    """Points in the methods' styles; curves are grey, since a curve goes through many methods."""
    curves = axis.table["curve"].unique(maintain_order=True).to_list()
    x = alt.X("value:O", title=axis.title, axis=alt.Axis(labelAngle=0))
    y = alt.Y("mean:Q", title="mean accuracy, %", scale=alt.Scale(zero=False, padding=12))
    drawn = base(data).transform_filter(IS_SHOWN).encode(x=x)
    dashes = [list(DASHES[place % len(DASHES)]) for place in range(len(curves))]
    curve = alt.StrokeDash(
        "curve:N",
        scale=alt.Scale(domain=curves, range=dashes),
        legend=None
        if len(curves) == 1
        else alt.Legend(title=None, orient="bottom", columns=1, labelLimit=300, symbolSize=400),
    )
    bars = (
        spread(drawn, "mean", "std")
        .mark_rule(strokeWidth=1.5)
        .encode(y=alt.Y("low:Q"), y2="high:Q", color=charts.colour())
    )
    host = (
        base(data)
        .transform_filter("isValid(datum.host_mean) && indexof(shown, datum.host) >= 0")
        .transform_aggregate(groupby=["host", "host_mean"], count="count()")
        .mark_rule(strokeDash=[4, 4], strokeWidth=1.5, color=MUTED)
        .encode(
            y="host_mean:Q",
            tooltip=[
                alt.Tooltip("host:N", title="host"),
                alt.Tooltip("host_mean:Q", title="mean accuracy, %", format=".2f"),
            ],
        )
    )
    tooltip = [
        alt.Tooltip("method:N"),
        alt.Tooltip("value:Q", title=axis.title, format="~g"),
        alt.Tooltip("mean:Q", title="mean accuracy, %", format=".2f"),
        alt.Tooltip("std:Q", title="± over runs", format=".2f"),
        alt.Tooltip("runs:Q"),
    ]
    layers = [
        *([host] if _any(axis, "host_mean") else []),
        drawn.mark_line(color=MUTED, strokeWidth=1.5).encode(y=y, strokeDash=curve),
        *([bars] if _any(axis, "std") else []),
        drawn.mark_point(filled=True, size=70, opacity=1).encode(
            y=y, color=charts.colour(), shape=charts.shape(), tooltip=tooltip
        ),
    ]
    return charts.finish(layers, HEIGHT)


def _any(axis: Axis, column: str) -> bool:
    """A layer of nothing has no scale, and Vega would warn of it."""
    return axis.table[column].drop_nulls().len() > 0
