"""Charts along the stream: accuracy as images come, and what was estimated of it without labels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import altair as alt
import polars as pl

from holdfast.report import chart_data
from holdfast.report.charts import HEIGHTS, MUTED, Charts, base, shown, slanted_axis, tips
from holdfast.report.figure import Figure, Spec
from holdfast.results import MIXED
from holdfast.results.comparison import Comparison
from holdfast.results.group import repeated_over

RED = "#d55e00"


def along(comparison: Comparison, charts: Charts) -> Iterator[Figure]:
    drawn = _Along(comparison, charts)
    yield from drawn.accuracy()
    yield from drawn.estimates()


@dataclass(frozen=True)
class _Along:
    comparison: Comparison
    charts: Charts

    def accuracy(self) -> Iterator[Figure]:
        table = chart_data.stream(self.comparison)
        if table.is_empty():
            return
        tables = {"stream": table, **self._borders}
        alarms = chart_data.alarms(self.comparison, "collapse")
        over = self._signs("stream-alarms", alarms, "✕", "collapse alarm at batch", tables)
        spec = self.charts.lines(
            "stream",
            self._x,
            alt.Y("accuracy:Q", title="accuracy, %", scale=alt.Scale(domainMin=0)),
            tips("accuracy", "accuracy, %", ".2f", "domain", "seen", std="std"),
            points=False,
            under=self._rules,
            over=over,
            size="wide",
        )
        crossed = " A cross marks a collapse alarm." if over else ""
        on_top = " Where lines meet, that of the method later in the legend is on top."
        on_top *= len(self.comparison.groups) > 1
        yield Figure(
            "stream",
            "Accuracy as images come",
            f"Each point is of a few batches{self._placed(table)}.{crossed}{on_top}",
            spec,
            tables,
            "wide",
        )

    def estimates(self) -> Iterator[Figure]:
        """What was estimated without labels, where it was, beside what labels say."""
        table = chart_data.estimates(self.comparison)
        if table.is_empty():
            return
        tables = {"estimates": table, **self._borders}
        drawn = shown("estimates").encode(x=self._x, color=self.charts.colour())
        band = drawn.mark_area(opacity=1, fillOpacity=0.09).encode(y="low:Q", y2="high:Q")
        true = drawn.mark_line(strokeWidth=1, strokeOpacity=0.6).encode(y="accuracy:Q")
        alarms = chart_data.alarms(self.comparison, "alarm")
        over = self._signs("estimates-alarms", alarms, "▲", "alarm at batch", tables)
        rang = " A triangle marks where the alarm first rang." if over else ""
        stretches = chart_data.fallbacks(self.comparison)
        if len(stretches):
            tables["fallbacks"] = stretches
            bars = (
                shown("fallbacks")
                .mark_rule(strokeWidth=5)
                .encode(
                    x=alt.X("start:Q", axis=self._axis),
                    x2="end:Q",
                    y=alt.value(3),
                    color=self.charts.colour(),
                    tooltip=[
                        alt.Tooltip("method:N"),
                        alt.Tooltip("run:N"),
                        alt.Tooltip("batches:Q", title="batches the source model answered"),
                    ],
                )
            )
            over.append(bars)
            rang += " A bar at the top: the source model answered."
        spec = self.charts.lines(
            "estimates",
            self._x,
            alt.Y("estimated:Q", title="accuracy, %", scale=alt.Scale(domain=[0, 100])),
            [
                *tips("estimated", "estimated, %", ".2f"),
                alt.Tooltip("accuracy:Q", title="true, %", format=".2f"),
                alt.Tooltip("domain:N"),
            ],
            points=False,
            under=[*self._rules, band, true],
            over=over,
            size="wide",
        )
        yield Figure(
            "estimates",
            "Accuracy as it is estimated without labels",
            "Thick lines are estimates, with the interval in which 90 % of such estimates lie; "
            f"thin ones of the same colour the true accuracy of the same batches.{rang}",
            spec,
            tables,
            "wide",
        )

    @cached_property
    def _domains(self) -> pl.DataFrame:
        return chart_data.boundaries(self.comparison)

    @property
    def _borders(self) -> dict[str, pl.DataFrame]:
        return {"stream-domains": self._domains} if len(self._domains) else {}

    @cached_property
    def _axis(self) -> alt.Axis:
        """Names of domains, where these follow each other; layers share it."""
        borders = self._domains
        if not len(borders):
            return alt.Axis(title="images seen", grid=False)
        names, middles = borders["domain"].to_list(), borders["middle"].to_list()
        named = f"{json.dumps(names)}[indexof({json.dumps(middles)}, datum.value)]"
        return slanted_axis(names, values=middles, labelExpr=named, ticks=False, title=None)

    @property
    def _x(self) -> alt.X:
        end = max(int(run.batches["images"].sum()) for run in self.comparison.runs)
        return alt.X("seen:Q", axis=self._axis, scale=alt.Scale(domain=[0, end], nice=False))

    @property
    def _rules(self) -> list[Any]:
        """Lines where a domain begins."""
        if not len(self._domains):
            return []
        rules = base("stream-domains").transform_filter("datum.start > 0")
        rules = rules.mark_rule(color=MUTED, opacity=0.45, strokeWidth=1)
        return [rules.encode(x=alt.X("start:Q", axis=self._axis))]

    def _signs(
        self,
        name: str,
        alarms: pl.DataFrame,
        sign: str,
        title: str,
        tables: dict[str, pl.DataFrame],
    ) -> list[Any]:
        """A sign at the foot for each alarm, which then are a table of the figure."""
        if not len(alarms):
            return []
        tables[name] = alarms
        mark: Spec = {"text": sign, "fontSize": 14, "fontWeight": "bold", "color": RED}
        tooltip = [alt.Tooltip("method:N"), alt.Tooltip("run:N")]
        tooltip += [alt.Tooltip("batch:Q", title=title), alt.Tooltip("domain:N")]
        x, foot = alt.X("seen:Q", axis=self._axis), alt.value(HEIGHTS["wide"])
        return [shown(name).mark_text(**mark, dy=-8).encode(x=x, y=foot, tooltip=tooltip)]

    def _placed(self, table: pl.DataFrame) -> str:
        """Which domains a point stands for, what its mean is over, and where lines stand."""
        names = set(table["domain"])
        of = "" if {chart_data.SEVERAL, MIXED} & names else " of one domain"
        mean = f", mean over {repeated_over(self.comparison.groups)}"
        if len(self._domains):
            kind = "visit" if self._domains["domain"].str.starts_with("visit ").all() else "domain"
            return f"{of}{mean}; upright lines stand where a {kind} begins"
        if chart_data.SEVERAL in names:
            return f"{mean}: domains differ at each point, so no line stands between them"
        return of + mean
