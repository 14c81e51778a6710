"""Sweeps: settings that vary between runs of the same methods, while all else stays the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from holdfast.report.charts import DASHED, DASHES, MUTED, Charts, base, has_any, shown, with_spread
from holdfast.report.figure import Figure, Spec
from holdfast.results.comparison import Comparison
from holdfast.results.group import Group
from holdfast.results.stored import IDLE

NAMES = {
    "batch": "batch size",
    "alpha": "α",
    "lambda_ema": "λ ema",
    "lambda_src": "λ src",
    "lambda_cons": "λ cons",
    "lr": "learning rate",
}


@dataclass(frozen=True)
class Axis:
    """One setting, and the curves along it."""

    key: str
    """method.setting, or batch."""
    table: pl.DataFrame
    """A row for each group on a curve, with the host's accuracy where all of them share it."""

    @property
    def title(self) -> str:
        return _title(self.key)


def sweeps(comparison: Comparison) -> list[Axis]:
    """Every axis along which some curve has two values or more."""
    families: dict[tuple[str, ...], list[Group]] = {}
    for group in comparison.groups:
        families.setdefault(group.names, []).append(group)
    rows: dict[str, list[dict[str, Any]]] = {}
    for names, groups in families.items():
        for key in _varying(groups):
            for differing, curve in _curves(groups, key):
                name = "+".join(names) + (f" ({differing})" if differing else "")
                rows.setdefault(key, []).extend(_rows(comparison, name, key, curve))
    return [
        Axis(key, pl.DataFrame(table, infer_schema_length=None).fill_nan(None))
        for key, table in rows.items()
    ]


def _configuration(group: Group) -> dict[str, Any]:
    """Everything that is set, resolved."""
    run = group.first
    conditions = {k: v for k, v in run.conditions.items() if k not in ("version", "source data")}
    return {**run.settings, **conditions}


def _varying(groups: list[Group]) -> list[str]:
    """Settings that are numbers in all, and not the same in all."""
    known = [_configuration(group) for group in groups]
    return [
        key
        for key in dict.fromkeys(key for settings in known for key in settings)
        if all(type(settings.get(key)) in (int, float) for settings in known)
        and len({settings[key] for settings in known}) > 1
    ]


def _curves(groups: list[Group], key: str) -> Iterator[tuple[str, list[Group]]]:
    """Groups that differ in one setting alone; named by what else sets curves apart."""
    curves: dict[str, dict[float, list[Group]]] = {}
    for group in groups:
        fixed = _configuration(group)
        value = float(fixed.pop(key))
        curve = curves.setdefault(json.dumps(fixed, sort_keys=True, default=str), {})
        curve.setdefault(value, []).append(group)
    long = {text: curve for text, curve in curves.items() if len(curve) > 1}
    known = [json.loads(text) for text in long]
    apart = [
        name
        for name in dict.fromkeys(name for settings in known for name in settings)
        if len({str(settings.get(name)) for settings in known}) > 1
    ]
    for settings, curve in zip(known, long.values(), strict=True):
        name = ", ".join(f"{_title(name)} {settings.get(name)}" for name in apart)
        yield name, [group for value in sorted(curve) for group in curve[value]]


def _rows(
    comparison: Comparison, name: str, key: str, curve: list[Group]
) -> Iterator[dict[str, Any]]:
    hosts = {host.label: host for group in curve if (host := comparison.host_of(group))}
    # A level that all points share; where the host is swept too, it has a curve of its own.
    (label, host), *_ = hosts.items() if len(hosts) == 1 else [(None, None)]
    for group in curve:
        accuracy = group.number("mean_accuracy")
        yield {
            "method": group.label,
            "curve": name,
            "value": float(_configuration(group)[key]),
            "mean": accuracy.value,
            "std": accuracy.std,
            "runs": len(group.runs),
            "host": label,
            "host_mean": None if host is None else host.mean("mean_accuracy"),
        }


def _title(key: str) -> str:
    part, _, name = key.rpartition(".")
    return f"{NAMES.get(name, name)} of {part}" if part else NAMES.get(name, name)


# The charts.


def sweep_figures(comparison: Comparison, charts: Charts) -> Iterator[Figure]:
    for index, axis in enumerate(sweeps(comparison)):
        name = f"sweep-{index}"
        hosts = set(axis.table.drop_nulls("host_mean")["host"])
        idle = any(group.idle for group in comparison.groups if group.label in hosts)
        acted = f", which {IDLE}" if idle else ""
        host = f" The dashed line is the host alone{acted}." if hosts else ""
        rate = " Which is best is known from labels alone." if axis.key.endswith(".lr") else ""
        yield Figure(
            name,
            f"Accuracy along {axis.title}",
            f"Mean accuracy over domains.{host}{rate}",
            _chart(charts, name, axis),
            {name: axis.table},
        )


def _chart(charts: Charts, data: str, axis: Axis) -> Spec:
    """Points in the methods' styles, with error bars over seeds; curves are grey, since a curve
    goes through many methods."""
    curves = axis.table["curve"].unique(maintain_order=True).to_list()
    x = alt.X("value:O", title=axis.title, axis=alt.Axis(labelAngle=0))
    y = alt.Y("mean:Q", title="mean accuracy, %", scale=alt.Scale(zero=False, padding=12))
    drawn = shown(data).encode(x=x)
    dashes = [DASHES[index % len(DASHES)] for index in range(len(curves))]
    legend = alt.Legend(title=None, orient="bottom", columns=1, labelLimit=300, symbolSize=400)
    curve = alt.StrokeDash(
        "curve:N",
        scale=alt.Scale(domain=curves, range=dashes),
        legend=legend if len(curves) > 1 else None,
    )
    accuracy: Spec = {"title": "mean accuracy, %", "format": ".2f"}
    host = (
        base(data)
        .transform_filter("isValid(datum.host_mean) && indexof(shown, datum.host) >= 0")
        .transform_aggregate(groupby=["host", "host_mean"], count="count()")
        .mark_rule(**DASHED)
        .encode(
            y="host_mean:Q",
            tooltip=[alt.Tooltip("host:N", title="host"), alt.Tooltip("host_mean:Q", **accuracy)],
        )
    )
    bars = with_spread(drawn, "mean").mark_rule(strokeWidth=1.5)
    bars = bars.encode(y=alt.Y("low:Q"), y2="high:Q", color=charts.colour())
    tooltip = [
        alt.Tooltip("method:N"),
        alt.Tooltip("value:Q", title=axis.title, format="~g"),
        alt.Tooltip("mean:Q", **accuracy),
        alt.Tooltip("std:Q", title="± over runs", format=".2f"),
        alt.Tooltip("runs:Q"),
    ]
    layers = [
        *([host] if has_any(axis.table, "host_mean") else []),
        drawn.mark_line(color=MUTED, strokeWidth=1.5).encode(y=y, strokeDash=curve),
        *([bars] if has_any(axis.table, "std") else []),
        drawn.mark_point(filled=True, size=70, opacity=1).encode(
            y=y, color=charts.colour(), shape=charts.shape(), tooltip=tooltip
        ),
    ]
    return charts.finish(layers)
