"""Charts as Vega-Lite, by Altair: each names its data and draws the methods in `shown`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import polars as pl

from holdfast.report.figure import Spec

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7f7f7f", "#e69f00", "#56b4e9")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
# Those that Vega draws, by its names, with their paths around (15, 6).
SHAPES = {
    "circle": "M15 2.5a3.5 3.5 0 1 0 .01 0Z",
    "square": "M11.8 2.8h6.4v6.4h-6.4Z",
    "triangle-up": "M15 1.8l4 7.4h-8Z",
    "diamond": "M15 1.2l3.4 4.8-3.4 4.8-3.4-4.8Z",
    "cross": "M13.6 2h2.8v2.6H19v2.8h-2.6V10h-2.8V7.4H11V4.6h2.6Z",
    "triangle-down": "M15 10.2l4-7.4h-8Z",
    "triangle-right": "M19.2 6l-7.4 4v-8Z",
}
FONT = "ui-sans-serif, system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    dash: tuple[int, ...]
    shape: str

    @property
    def path(self) -> str:
        """The shape's, for a legend that Vega does not draw."""
        return SHAPES[self.shape]


def style(index: int) -> Style:
    """The style of the method with this index; after seven, dashes tell methods of one colour
    apart."""
    turn, colour = divmod(index, len(COLOURS))
    shape = list(SHAPES)[(colour + turn) % len(SHAPES)]
    return Style(COLOURS[colour], DASHES[turn % len(DASHES)], shape)


def theme(ink: str, soft: str, line: str) -> dict[str, Any]:
    return {
        "background": None,
        "font": FONT,
        "padding": 2,
        "view": {"stroke": None},
        "axis": {
            "domain": False,
            "ticks": False,
            "gridColor": line,
            "gridWidth": 1,
            "labelColor": soft,
            "labelFontSize": 11,
            "labelPadding": 6,
            "titleColor": soft,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "titlePadding": 8,
        },
        "axisX": {"grid": False, "domain": True, "domainColor": line},
        "legend": {
            "labelColor": ink,
            "labelFontSize": 12,
            "symbolStrokeWidth": 2,
            "symbolSize": 70,
            "columnPadding": 18,
            "rowPadding": 4,
        },
        "title": {"color": ink, "fontSize": 14, "fontWeight": 600, "anchor": "start", "offset": 12},
        "text": {"color": soft},
        "style": {"whisker": {"color": ink, "stroke": ink, "strokeWidth": 1.5}},
    }


LIGHT = theme(ink="#1c1e22", soft="#5c626b", line="#e9e9e4")
DARK = theme(ink="#e8e8e4", soft="#a2a8b1", line="#2b2f35")


# The page sets this parameter of every chart to the methods that are chosen.
SHOWN = "shown"

# By the size of a figure.
HEIGHTS = {"half": 260, "wide": 340, "small": 84}
# Of a bar with its name.
BAR_HEIGHT = 30
MUTED = "#8a8f98"
# Of a line that methods are held against.
DASHED: Spec = {"color": MUTED, "strokeDash": [4, 4], "strokeWidth": 1.5}
# Of more domains than these on an axis some names are left out.
MANY = 20

_TIPS = {
    "domain": alt.Tooltip("domain:N", title="domain"),
    "seen": alt.Tooltip("seen:Q", title="images seen", format=",.0f"),
    "images": alt.Tooltip("images:Q", title="images", format=",.0f"),
    "bin": alt.Tooltip("bin:N", title="confidence"),
    "confidence": alt.Tooltip("confidence:Q", title="mean confidence, %", format=".2f"),
    "time_mean": alt.Tooltip("time_mean:Q", title="mean, ms", format=".2f"),
    "ece_20": alt.Tooltip("ece_20:Q", title="ECE (20 bins), %", format=".2f"),
}


@dataclass(frozen=True)
class Charts:
    """Makes charts of some methods, each always in its own style, and without a legend: the page
    has one for all charts, and pictures add theirs."""

    labels: tuple[str, ...]

    def lines(
        self,
        data: str,
        x: alt.X,
        y: alt.Y,
        tooltip: Sequence[alt.Tooltip],
        *,
        points: bool = True,
        interpolate: str = "linear",
        under: Sequence[Any] = (),
        over: Sequence[Any] = (),
        size: str = "half",
        only: str = "",
    ) -> Spec:
        """A line for each method, and on hover the numbers of the nearest point. `only`: a further
        condition on rows."""
        width, area = (1.25, 10) if size == "small" else (2, 36)
        drawn = shown(data, only).encode(x=x, y=y, color=self.colour())
        hover = alt.selection_point(on="pointerover", nearest=True, empty=False, name="hover")
        line = drawn.mark_line(interpolate=interpolate, strokeWidth=width, strokeJoin="round")
        marks = drawn.mark_point(filled=True).encode(
            shape=self.shape(),
            size=alt.condition(hover, alt.value(90), alt.value(area)),
            opacity=alt.condition(hover, alt.value(1), alt.value(int(points))),
            tooltip=list(tooltip),
        )
        dash = self._styled(alt.StrokeDash, "dash")
        layers = [*under, line.encode(strokeDash=dash), marks.add_params(hover), *over]
        return self.finish(layers, HEIGHTS[size])

    def bars(
        self, data: str, x: alt.X, tooltip: Sequence[alt.Tooltip], table: pl.DataFrame
    ) -> Spec:
        """A bar for each method under its name, and its spread over seeds if there are some."""
        axis = alt.Axis(labels=False, grid=False)
        y = alt.Y("method:N", sort=list(self.labels), title=None, axis=axis)
        drawn = shown(data).encode(y=y)
        bar = drawn.mark_bar(height=9, cornerRadiusEnd=2, yOffset=6).encode(
            x=x, color=self.colour(), tooltip=list(tooltip)
        )
        name = drawn.mark_text(align="left", baseline="bottom", fontSize=11, dx=2, dy=1).encode(
            x=alt.value(0), text="method:N"
        )
        spread = with_spread(drawn, x.shorthand).mark_rule(style="whisker", yOffset=6)
        whiskers = [spread.encode(x="low:Q", x2="high:Q")] if has_any(table, "std") else []
        return self.finish([bar, name, *whiskers], BAR_HEIGHT * len(table))

    def colour(self) -> Any:
        return self._styled(alt.Color, "colour")

    def shape(self) -> Any:
        return self._styled(alt.Shape, "shape")

    def _styled(self, channel: Any, trait: str) -> Any:
        """A channel by which styles of methods differ."""
        values = [getattr(style(index), trait) for index in range(len(self.labels))]
        scale = alt.Scale(domain=list(self.labels), range=values)
        return channel("method:N", scale=scale, legend=None)

    def finish(self, layers: Sequence[Any], height: int = HEIGHTS["half"]) -> Spec:
        together = alt.layer(*layers).properties(
            width="container",
            height=height,
            autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        )
        spec: Spec = together.to_dict(validate=False)
        spec.pop("config", None)
        methods = {"name": SHOWN, "value": list(self.labels)}
        return {**spec, "params": [*spec.get("params", []), methods]}


def base(data: str) -> Any:
    # Altair's chained calls have no types.
    return alt.Chart(alt.NamedData(name=data))


def shown(data: str, only: str = "") -> Any:
    """The rows of methods that are chosen, if they also meet `only`."""
    return base(data).transform_filter(f"indexof({SHOWN}, datum.method) >= 0{only}")


def with_spread(drawn: Any, mean: str) -> Any:
    """The ends of an error bar, `low` and `high`, where there is a deviation `std`."""
    return drawn.transform_filter("isValid(datum.std)").transform_calculate(
        low=f"datum.{mean} - datum.std", high=f"datum.{mean} + datum.std"
    )


def has_any(table: pl.DataFrame, column: str) -> bool:
    """A layer of nothing has no scale, and Vega would warn of it."""
    return table[column].drop_nulls().len() > 0


# Axes and what hovering shows.


def slanted_axis(names: Sequence[str], **more: Any) -> alt.Axis:
    """An axis with the names of domains."""
    return alt.Axis(labelAngle=-45, labelOverlap=len(names) > MANY, grid=False, **more)


def tips(
    column: str, title: str, digits: str, *extra: str, std: str | None = None
) -> list[alt.Tooltip]:
    """The method, the metric with its spread, and what else places the mark."""
    lines = [alt.Tooltip("method:N"), alt.Tooltip(f"{column}:Q", title=title, format=digits)]
    if std is not None:
        lines.append(alt.Tooltip(f"{std}:Q", title="± over runs", format=digits))
    return [*lines, *(_TIPS[name] for name in extra)]
