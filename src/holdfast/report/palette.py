"""What charts look like: a style for each method, the same in every chart, and a theme for light
and for dark ground.

Colours are those of Okabe and Ito, which people who see colours differently can tell apart too, but
for yellow, which cannot be read on white, and black, which cannot on black and is grey here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


def style(place: int) -> Style:
    """Of the method at that place; after seven, dashes tell those of one colour apart."""
    turn, colour = divmod(place, len(COLOURS))
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
