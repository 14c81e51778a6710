"""Which figures a comparison has: the paper's, for whatever was run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import polars as pl
from altair.utils.schemapi import debug_mode

from holdfast.bench.metrics.seen import MIXED
from holdfast.bench.names import short
from holdfast.report import chart_data
from holdfast.report.charts import HEIGHT, SMALL_HEIGHT, WIDE_HEIGHT, Charts, Spec
from holdfast.report.coincide import coincidence
from holdfast.report.features import feature_figures
from holdfast.report.figure import Figure, Section
from holdfast.report.marks import (
    along,
    boundaries,
    crosses,
    diagonal,
    domain_axis,
    level,
    tips,
)
from holdfast.report.sweep_chart import sweep_chart
from holdfast.report.sweeps import sweeps
from holdfast.results.acting import IDLE
from holdfast.results.comparison import Comparison
from holdfast.results.group import repeated_over

# As many domains as have a small chart each.
SMALL = 20


def sections(comparison: Comparison, charts: Charts, prefix: str = "") -> list[Section]:
    """Those that have something to show."""
    drawn = _Drawn(comparison, charts, prefix)
    few = len(comparison.domains) <= SMALL
    plan = (
        # Where there are some, they are what was asked.
        (
            "sweeps",
            "Sweeps",
            "One setting varies and all else stays the same; bars show the spread over "
            f"{repeated_over(comparison.groups)}.",
            drawn.sweeps,
        ),
        ("stream", "Along the stream", "", drawn.stream),
        (
            "bias",
            "Which classes are predicted",
            "A model that drifts into a few favourite classes predicts them far more often than "
            "they come.",
            drawn.bias,
        ),
        (
            "classes",
            "Predicted classes, domain by domain",
            "How many images are predicted to be of each class, the most predicted first, "
            f"of {'each domain' if few else f'the first {SMALL} domains'}.",
            drawn.classes,
        ),
        (
            "confidence",
            "Confidence and calibration",
            "A calibrated model is right as often as it says.",
            drawn.confidence,
        ),
        ("time", "Time", "", drawn.time),
        (
            "features",
            "Where features lie",
            "Squared distances between features of classes, by true class, and similarities of "
            "prototypes, of the runs that were made with an analysis.",
            lambda: feature_figures(comparison, charts, prefix),
        ),
    )
    # Altair's checks of every part against its schema take most of the time; a test has them on.
    with debug_mode(charts.check):
        found = [
            Section(title, about, tuple(map(_noted, make())), prefix + name)
            for name, title, about, make in plan
        ]
    return [one for one in found if one.figures]


def _noted(figure: Figure) -> Figure:
    return replace(figure, note=coincidence(figure))


@dataclass(frozen=True)
class _Drawn:
    comparison: Comparison
    charts: Charts
    prefix: str

    def stream(self) -> Iterator[Figure]:
        table = chart_data.stream(self.comparison)
        if table.is_empty():
            return
        name, tables = self.prefix + "stream", {self.prefix + "stream": table}
        under: list[Any] = []
        alarmed: list[Any] = []
        axis = alt.Axis(title="images seen", grid=False)
        end = max(int(one.batches["images"].sum()) for one in self.comparison.runs)
        borders = chart_data.boundaries(self.comparison)
        if len(borders):
            tables[name + "-domains"] = borders
            axis = domain_axis(borders["domain"].to_list(), borders["middle"].to_list())
            under.append(boundaries(name + "-domains", axis))
        alarms = chart_data.alarms(self.comparison)
        if len(alarms):
            tables[name + "-alarms"] = alarms
            alarmed.append(crosses(name + "-alarms", axis))
        spec = self.charts.lines(
            name,
            alt.X("seen:Q", axis=axis, scale=alt.Scale(domain=[0, end])),
            alt.Y("accuracy:Q", title="accuracy, %", scale=alt.Scale(domainMin=0)),
            tips("accuracy", "accuracy, %", ".2f", "domain:N", "seen:Q", std="std"),
            points=False,
            under=under,
            over=alarmed,
            height=WIDE_HEIGHT,
        )
        crossed = " A cross marks a collapse alarm." if alarmed else ""
        on_top = " Where lines meet, that of the method later in the legend is on top."
        if len(self.comparison.groups) < 2:
            on_top = ""
        yield Figure(
            name,
            "Accuracy as images come",
            f"Each point is of a few batches{self._placed(table, borders)}.{crossed}{on_top}",
            spec,
            tables,
            "wide",
        )

    def _placed(self, table: pl.DataFrame, borders: pl.DataFrame) -> str:
        """Of which domains a point is, what its mean is over, and where lines stand."""
        there = set(table["domain"])
        of = "" if {chart_data.SEVERAL, MIXED} & there else " of one domain"
        mean = f", mean over {repeated_over(self.comparison.groups)}"
        if len(borders):
            what = "visit" if borders["domain"].str.starts_with("visit ").all() else "domain"
            return f"{of}{mean}; upright lines stand where a {what} begins"
        if chart_data.SEVERAL in there:
            return f"{mean}: domains differ at each point, so no line stands between them"
        return of + mean

    def bias(self) -> Iterator[Figure]:
        table = chart_data.ranks(self.comparison)
        if table.is_empty():
            return
        name = self.prefix + "ranks"
        yield Figure(
            name,
            "Predicted images of each class",
            "Sorted for each method; the dashed line is how many images a class has on average.",
            self._ranks_chart(name),
            {name: table},
        )
        yield from self._by_domain(
            "bias",
            "Bias, domain by domain",
            "The share of predictions to change for each class to come as often as it is there.",
            "bias, %",
        )

    def classes(self) -> Iterator[Figure]:
        domains = self.comparison.domains[:SMALL]
        if len(domains) < 2:
            return
        # One chart for all of them: its data are told by a name alone.
        small = json.dumps(self._ranks_chart("{data}", small=True))
        for place, domain in enumerate(domains):
            name = f"{self.prefix}ranks-{place}"
            spec = json.loads(small.replace("{data}", name))
            few = chart_data.ranks(self.comparison, domain)
            if len(few):
                yield Figure(name, short(domain), "", spec, {name: few}, "small")

    def _ranks_chart(self, name: str, *, small: bool = False) -> Spec:
        return self.charts.lines(
            name,
            alt.X(
                "rank:Q",
                title=None if small else "classes, the most predicted first",
                scale=alt.Scale(nice=False, zero=False),
                axis=alt.Axis(grid=False, tickCount=3 if small else 6, tickMinStep=1),
            ),
            alt.Y(
                "images:Q",
                title=None if small else "images predicted to be of a class",
                axis=alt.Axis(tickCount=3 if small else 6),
            ),
            [
                alt.Tooltip("method:N"),
                alt.Tooltip("rank:Q", title="class by rank"),
                alt.Tooltip("images:Q", title="images predicted", format=".1f"),
                alt.Tooltip("level:Q", title="images a class", format=".1f"),
            ],
            points=False,
            under=[level(name, "level", "images a class")],
            height=SMALL_HEIGHT if small else HEIGHT,
            thin=small,
        )

    def confidence(self) -> Iterator[Figure]:
        table = chart_data.bins(self.comparison)
        if table.is_empty():
            return
        shared = {self.prefix + "bins": table}
        middle = alt.X("middle:Q", title="confidence, %", scale=_PERCENT)
        yield Figure(
            self.prefix + "histogram",
            "How confident predictions are",
            "Share of predictions in 20 bins of confidence.",
            self.charts.lines(
                self.prefix + "bins",
                middle,
                alt.Y("share:Q", title="share of predictions, %"),
                tips("share", "share, %", ".2f", "bin:N", "images:Q"),
                interpolate="step",
                points=False,
            ),
            shared,
        )
        yield Figure(
            self.prefix + "reliability",
            "Accuracy at each confidence",
            "On the dashed line a model is calibrated; below it, it is overconfident. Bins of "
            "fewer than ten images are left out.",
            self.charts.lines(
                self.prefix + "bins",
                alt.X("confidence:Q", title="mean confidence, %", scale=_PERCENT),
                alt.Y("accuracy:Q", title="accuracy, %", scale=_PERCENT),
                tips("accuracy", "accuracy, %", ".2f", "confidence:Q", "bin:N", "images:Q"),
                under=[diagonal()],
                only="!datum.few",
            ),
            shared,
        )
        yield Figure(
            self.prefix + "entropy-by-confidence",
            "Entropy at each confidence",
            "Mean entropy of the predictions in each bin of confidence.",
            self.charts.lines(
                self.prefix + "bins",
                middle,
                alt.Y("entropy:Q", title="entropy, nats"),
                tips("entropy", "entropy, nats", ".3f", "bin:N", "images:Q"),
                only="!datum.few",
            ),
            shared,
        )
        yield from self._by_domain(
            "entropy", "Entropy, domain by domain", "Mean over a domain's images.", "entropy, nats"
        )
        calibration = chart_data.calibration(self.comparison)
        if len(calibration):
            yield Figure(
                self.prefix + "ece",
                "Expected calibration error",
                "Mean distance between accuracy and confidence over 15 bins, weighted by images; "
                "less is better.",
                self.charts.bars(
                    self.prefix + "ece",
                    alt.X("ece", type="quantitative", title="ECE, %", axis=alt.Axis(tickCount=8)),
                    tips("ece", "ECE (15 bins), %", ".2f", "ece_20:Q", std="std"),
                    "std" if calibration["std"].drop_nulls().len() else None,
                    many=len(calibration),
                ),
                {self.prefix + "ece": calibration},
            )

    def time(self) -> Iterator[Figure]:
        disturbed = ""
        if self.comparison.disturbed:
            disturbed = (
                " Some runs went on at the same time, or were resumed: their times say less."
            )
        elif not all(one.steady for one in self.comparison.groups):
            disturbed = (
                " Some batches took far longer than others, perhaps for other programs' sake."
            )
        yield from self._by_domain(
            "time",
            "Time of a batch, domain by domain",
            "Median over a domain's batches of what the method's step takes." + disturbed,
            "time of a batch, ms",
            "time_mean:Q",
        )

    def _by_domain(
        self, figure: str, title: str, caption: str, unit: str, *others: str
    ) -> Iterator[Figure]:
        table = chart_data.by_domain(self.comparison)
        if table.drop_nulls(figure)["domain"].n_unique() < 2:
            return
        name = self.prefix + "by-domain"
        spec = self.charts.lines(
            name,
            along(chart_data.order(self.comparison.domains)),
            alt.Y(f"{figure}:Q", title=unit),
            tips(figure, unit, ".2f", "domain:N", *others, std=f"{figure}_std"),
        )
        yield Figure(f"{self.prefix}{figure}-by-domain", title, caption, spec, {name: table})

    def sweeps(self) -> Iterator[Figure]:
        for place, axis in enumerate(sweeps(self.comparison)):
            name = f"{self.prefix}sweep-{place}"
            hosts = set(axis.table.drop_nulls("host_mean")["host"])
            idle = any(one.idle for one in self.comparison.groups if one.label in hosts)
            acted = f", which {IDLE}" if idle else ""
            host = f" The dashed line is the host alone{acted}." if hosts else ""
            rate = " Which is best is known from labels alone." if axis.is_rate else ""
            yield Figure(
                name,
                f"Accuracy along {axis.title}",
                f"Mean accuracy over domains.{host}{rate}",
                sweep_chart(self.charts, name, axis),
                {name: axis.table},
            )


_PERCENT = alt.Scale(domain=[0, 100])
