"""What charts look like on light and on dark ground."""

from __future__ import annotations

from typing import Any

FONT = "ui-sans-serif, system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


def theme(ink: str, soft: str, line: str) -> dict[str, Any]:
    axis = {
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
    }
    return {
        "background": None,
        "font": FONT,
        "padding": 2,
        "view": {"stroke": None},
        "axis": axis,
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
