"""Which figures a comparison has: the paper's, for whatever was run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import altair as alt
import polars as pl
from altair.utils.schemapi import debug_mode

from holdfast.report import chart_data
from holdfast.report.along import along
from holdfast.report.charts import DASHED, Charts, base, slanted_axis, tips
from holdfast.report.figure import Figure, Section, Spec
from holdfast.report.sweeps import sweep_figures
from holdfast.results import short
from holdfast.results.comparison import Comparison
from holdfast.results.group import repeated_over

# At most so many domains have a small chart each.
SMALL = 20
_PERCENT = alt.Scale(domain=[0, 100])


@dataclass(frozen=True)
class DomainMetric:
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


BIAS = DomainMetric(
    "bias",
    "Bias, domain by domain",
    "The share of predictions to change for each class to come as often as it is there.",
    "bias, %",
)
ENTROPY = DomainMetric(
    "entropy", "Entropy, domain by domain", "Mean over a domain's images.", "entropy, nats"
)
TIME = DomainMetric(
    "time",
    "Time of a batch, domain by domain",
    "Median over a domain's batches of what the method's step takes.",
    "time of a batch, ms",
    others=("time_mean",),
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


def sections(comparison: Comparison, charts: Charts, prefix: str = "") -> list[Section]:
    """The sections that have something to show."""
    drawn = _Figures(comparison, charts)
    few = len(comparison.domains) <= SMALL
    plan = (
        # Where there are some, they are what was asked.
        (
            "sweeps",
            "Sweeps",
            "One setting varies and all else stays the same; bars show the spread over "
            f"{repeated_over(comparison.groups)}.",
            sweep_figures(comparison, charts),
        ),
        ("stream", "Along the stream", "", along(comparison, charts)),
        (
            "bias",
            "Which classes are predicted",
            "A model that drifts into a few favourite classes predicts them far more often than "
            "they come.",
            drawn.bias(),
        ),
        (
            "classes",
            "Predicted classes, domain by domain",
            "How many images are predicted to be of each class, the most predicted first, "
            f"of {'each domain' if few else f'the first {SMALL} domains'}.",
            drawn.classes(),
        ),
        (
            "confidence",
            "Confidence and calibration",
            "A calibrated model is right as often as it says.",
            drawn.confidence(),
        ),
        ("time", "Time", "", drawn.time()),
        (
            "features",
            "Where features lie",
            "Squared distances between features of classes, by true class, and similarities of "
            "prototypes, of the runs that were made with an analysis.",
            drawn.features(),
        ),
    )
    # Altair's checks of every part against its schema take most of the time; a test makes them.
    with debug_mode(False):
        made = [
            Section(
                title,
                about,
                tuple(figure.renamed(prefix + "{}") for figure in figures),
                prefix + name,
            )
            for name, title, about, figures in plan
        ]
    return [section for section in made if section.figures]


@dataclass(frozen=True)
class _Figures:
    comparison: Comparison
    charts: Charts

    @cached_property
    def _domains(self) -> pl.DataFrame:
        return chart_data.by_domain(self.comparison)

    def bias(self) -> Iterator[Figure]:
        table = chart_data.ranks(self.comparison)
        if table.is_empty():
            return
        yield Figure(
            "ranks",
            "Predicted images of each class",
            "Sorted for each method; the dashed line is how many images a class has on average.",
            self._ranks_chart(),
            {"ranks": table},
        )
        yield from self._by_domain(BIAS)

    def classes(self) -> Iterator[Figure]:
        domains = self.comparison.domains[:SMALL]
        if len(domains) < 2:
            return
        spec = self._ranks_chart(small=True)
        for index, domain in enumerate(domains):
            table = chart_data.ranks(self.comparison, domain)
            if len(table):
                figure = Figure("ranks", short(domain), "", spec, {"ranks": table}, "small")
                yield figure.renamed(f"{{}}-{index}")

    def _ranks_chart(self, *, small: bool = False) -> Spec:
        ticks = 3 if small else 6
        average = base("ranks").transform_aggregate(level="mean(level)").mark_rule(**DASHED)
        images_a_class = alt.Tooltip("level:Q", title="images a class", format=".1f")
        return self.charts.lines(
            "ranks",
            alt.X(
                "rank:Q",
                title=None if small else "classes, the most predicted first",
                scale=alt.Scale(nice=False, zero=False),
                axis=alt.Axis(grid=False, tickCount=ticks, tickMinStep=1),
            ),
            alt.Y(
                "images:Q",
                title=None if small else "images predicted to be of a class",
                axis=alt.Axis(tickCount=ticks),
            ),
            [
                alt.Tooltip("method:N"),
                alt.Tooltip("rank:Q", title="class by rank"),
                alt.Tooltip("images:Q", title="images predicted", format=".1f"),
                images_a_class,
            ],
            points=False,
            under=[average.encode(y=alt.Y("level:Q"), tooltip=[images_a_class])],
            size="small" if small else "half",
        )

    def confidence(self) -> Iterator[Figure]:
        table = chart_data.bins(self.comparison)
        if table.is_empty():
            return
        middle = alt.X("middle:Q", title="confidence, %", scale=_PERCENT)
        ends = alt.sequence(0, 101, 100, as_="at")  # the page replaces data that have a name
        diagonal = alt.Chart(ends).mark_line(**DASHED).encode(x="at:Q", y="at:Q")
        plan = (
            (
                "histogram",
                "How confident predictions are",
                "Share of predictions in 20 bins of confidence.",
                middle,
                alt.Y("share:Q", title="share of predictions, %"),
                tips("share", "share, %", ".2f", "bin", "images"),
                {"interpolate": "step", "points": False},
            ),
            (
                "reliability",
                "Accuracy at each confidence",
                "On the dashed line a model is calibrated; below it, it is overconfident. Bins of "
                "fewer than ten images are left out.",
                alt.X("confidence:Q", title="mean confidence, %", scale=_PERCENT),
                alt.Y("accuracy:Q", title="accuracy, %", scale=_PERCENT),
                tips("accuracy", "accuracy, %", ".2f", "confidence", "bin", "images"),
                {"under": [diagonal], "only": " && !datum.few"},
            ),
            (
                "entropy-by-confidence",
                "Entropy at each confidence",
                "Mean entropy of the predictions in each bin of confidence.",
                middle,
                alt.Y("entropy:Q", title="entropy, nats"),
                tips("entropy", "entropy, nats", ".3f", "bin", "images"),
                {"only": " && !datum.few"},
            ),
        )
        for name, title, caption, x, y, tooltip, drawn in plan:
            spec = self.charts.lines("bins", x, y, tooltip, **drawn)
            yield Figure(name, title, caption, spec, {"bins": table})
        yield from self._by_domain(ENTROPY)
        calibration = chart_data.calibration(self.comparison)
        if len(calibration):
            yield Figure(
                "ece",
                "Expected calibration error",
                "Mean distance between accuracy and confidence over 15 bins, weighted by images; "
                "less is better.",
                self.charts.bars(
                    "ece",
                    alt.X("ece", type="quantitative", title="ECE, %", axis=alt.Axis(tickCount=8)),
                    tips("ece", "ECE (15 bins), %", ".2f", "ece_20", std="std"),
                    calibration,
                ),
                {"ece": calibration},
            )

    def time(self) -> Iterator[Figure]:
        doubt = ""
        if self.comparison.disturbed:
            doubt = " Some runs went on at the same time, or were resumed: their times say less."
        elif not all(group.steady for group in self.comparison.groups):
            doubt = " Some batches took far longer than others, perhaps for other programs' sake."
        return self._by_domain(replace(TIME, caption=TIME.caption + doubt))

    def features(self) -> Iterator[Figure]:
        table = chart_data.geometry(self.comparison)
        for column, (title, caption) in (DISTANCES | SIMILARITIES).items():
            if len(table) and table[column].drop_nulls().len():
                near = column in SIMILARITIES
                unit = "cosine" if near else column
                metric = DomainMetric(
                    column, title, caption, unit, title.lower(), ".3f", zero=not near
                )
                yield self._along_domains(column.replace("_", "-"), metric, "geometry", table)

    def _by_domain(self, metric: DomainMetric) -> Iterator[Figure]:
        """Where there are domains to compare."""
        table = self._domains
        if len(table) and table.drop_nulls(metric.column)["domain"].n_unique() > 1:
            yield self._along_domains(f"{metric.column}-by-domain", metric, "by-domain", table)

    def _along_domains(
        self, name: str, metric: DomainMetric, data: str, table: pl.DataFrame
    ) -> Figure:
        column, spoken = metric.column, metric.spoken or metric.unit
        domains = table["domain"].unique(maintain_order=True).to_list()
        spec = self.charts.lines(
            data,
            alt.X("domain:N", sort=domains, title=None, axis=slanted_axis(domains)),
            alt.Y(f"{column}:Q", title=metric.unit, scale=alt.Scale(zero=metric.zero)),
            tips(column, spoken, metric.digits, "domain", *metric.others, std=f"{column}_std"),
        )
        return Figure(name, metric.title, metric.caption, spec, {data: table})
