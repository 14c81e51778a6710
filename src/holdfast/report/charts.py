"""Charts as Vega-Lite, by Altair: each names its data and draws the methods in `shown`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import altair as alt

from holdfast.report.palette import Style, style

Spec: TypeAlias = dict[str, Any]

# The page sets this parameter of every chart to the methods that are chosen.
SHOWN = "shown"
IS_SHOWN = f"indexof({SHOWN}, datum.method) >= 0"

HEIGHT, WIDE_HEIGHT, SMALL_HEIGHT = 260, 340, 84
# Long enough to tell dashes apart.
LEGEND_LINE = 24
# Of a bar with its name.
BAR_HEIGHT = 30
MUTED = "#8a8f98"


@dataclass(frozen=True)
class Charts:
    """Makes charts of some methods, each always in its own style."""

    labels: tuple[str, ...]
    legend: bool = False
    """For pictures; the page has a legend of its own for all charts."""
    remarks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By label, what a legend says of it."""
    check: bool = False
    """Whether Altair holds every part against its schema."""

    # Of any kind.

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
        height: int = HEIGHT,
        thin: bool = False,
        only: str | None = None,
    ) -> Spec:
        """A line for each method, and on hover the numbers of the nearest point. `only`: rows of
        which an expression is true."""
        shown = IS_SHOWN if only is None else f"{IS_SHOWN} && {only}"
        colour = self.colour(lines=not points)
        drawn = base(data).transform_filter(shown).encode(x=x, y=y, color=colour)
        hover = alt.selection_point(on="pointerover", nearest=True, empty=False, name="hover")
        marks = alt.value(1) if points else alt.value(0)
        layers = [
            *under,
            drawn.mark_line(
                interpolate=interpolate,
                strokeWidth=1.25 if thin else 2,
                strokeJoin="round",
            ).encode(strokeDash=self.dash(legend=not points)),
            drawn.mark_point(filled=True)
            .encode(
                shape=self.shape(legend=points),
                size=alt.condition(hover, alt.value(90), alt.value(10 if thin else 36)),
                opacity=alt.condition(hover, alt.value(1), marks),
                tooltip=list(tooltip),
            )
            .add_params(hover),
            *over,
        ]
        return self.finish(layers, height, apart="strokeDash" if points else "shape")

    def bars(
        self, data: str, x: alt.X, tooltip: Sequence[alt.Tooltip], std: str | None, many: int
    ) -> Spec:
        """A bar for each method under its name, and its spread over seeds if there are some."""
        axis = alt.Axis(labels=False, grid=False)
        y = alt.Y("method:N", sort=list(self.labels), title=None, axis=axis)
        drawn = base(data).transform_filter(IS_SHOWN).encode(y=y)
        bar = drawn.mark_bar(height=9, cornerRadiusEnd=2, yOffset=6).encode(
            x=x, color=self.colour().legend(None), tooltip=list(tooltip)
        )
        name = drawn.mark_text(align="left", baseline="bottom", fontSize=11, dx=2, dy=1).encode(
            x=alt.value(0), text="method:N"
        )
        if std is None:
            return self.finish((bar, name), BAR_HEIGHT * many)
        whisker = (
            spread(drawn, x.shorthand, std)
            .mark_rule(style="whisker", yOffset=6)
            .encode(x="low:Q", x2="high:Q")
        )
        return self.finish((bar, name, whisker), BAR_HEIGHT * many)

    # The styles.

    @cached_property
    def _styles(self) -> list[Style]:
        return [style(place) for place in range(len(self.labels))]

    def _scale(self, values: list[Any]) -> alt.Scale:
        return alt.Scale(domain=list(self.labels), range=values)

    def colour(self, *, lines: bool = False) -> alt.Color:
        """`lines`: a legend shows them, and no points."""
        scale = self._scale([one.colour for one in self._styles])
        return alt.Color("method:N", scale=scale, legend=self._legend(lines=lines))

    def dash(self, *, legend: bool) -> alt.StrokeDash:
        scale = self._scale([list(one.dash) for one in self._styles])
        shown = self._legend(lines=True) if legend else None
        return alt.StrokeDash("method:N", scale=scale, legend=shown)

    def shape(self, *, legend: bool = True) -> alt.Shape:
        scale = self._scale([one.shape for one in self._styles])
        return alt.Shape("method:N", scale=scale, legend=self._legend() if legend else None)

    def _legend(self, *, lines: bool = False) -> alt.Legend | None:
        if not self.legend:
            return None
        # A dash shows on a line alone, and would fray the outline of a point.
        line: Spec = {"symbolType": "stroke", "symbolSize": LEGEND_LINE**2} if lines else {}
        remarks = json.dumps({name: ", ".join(["", *of]) for name, of in self.remarks.items()})
        return alt.Legend(
            title=None,
            orient="bottom",
            columns=3 if max(map(len, self.labels), default=0) < 24 else 1,
            labelLimit=500,
            labelExpr=f"datum.label + ({remarks}[datum.label] || '')",
            **line,
        )

    def finish(self, layers: Sequence[Any], height: Any, *, apart: str | None = None) -> Spec:
        """`apart`: a channel that the legend does not show. Vega-Lite would take it into the
        legend of any other with the same names, though it has none of its own."""
        together = alt.layer(*layers)
        if apart is not None and self.legend:
            alone: Spec = {apart: "independent"}
            together = together.resolve_legend(**alone)
        sized = together.properties(
            width="container",
            height=height,
            autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        )
        spec: Spec = sized.to_dict(validate=self.check)
        spec.pop("config", None)
        spec["params"] = [
            *spec.get("params", []),
            {"name": SHOWN, "value": list(self.labels)},
        ]
        return spec


def base(data: str) -> Any:
    # Altair's chained calls have no types.
    return alt.Chart(alt.NamedData(name=data))


def spread(drawn: Any, mean: str, std: str) -> Any:
    """The ends of an error bar, `low` and `high`, where there is one."""
    return drawn.transform_filter(f"isValid(datum.{std})").transform_calculate(
        low=f"datum.{mean} - datum.{std}", high=f"datum.{mean} + datum.{std}"
    )
