"""The page's charts as PNG files."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import vl_convert

from holdfast.report.chart_data import rounded
from holdfast.report.figure import Figure
from holdfast.report.page import Report
from holdfast.report.palette import LIGHT
from holdfast.util import files

WIDTHS = {"wide": 900, "half": 560, "small": 240}


def write_pictures(report: Report, folder: Path) -> list[Path]:
    """A file for each chart, with a legend and a title; the paths in the page's order."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    sections = (section for part in report.sections(legend=True) for section in part)
    for figure in (figure for section in sections for figure in section.figures):
        png = vl_convert.vegalite_to_png(self_contained(figure, report.labels), scale=2)
        path = folder / f"{re.sub(r'[^a-z0-9-]+', '-', figure.id)}.png"
        files.write_whole(path, lambda part, png=png: part.write_bytes(png))  # type: ignore[misc]
        written.append(path)
    return written


def self_contained(figure: Figure, labels: tuple[str, ...]) -> dict[str, Any]:
    """The chart with its data, title, theme and width: what any Vega-Lite program draws."""
    spec = copy.deepcopy(figure.spec)
    spec["width"] = WIDTHS[figure.size]
    spec["title"] = {"text": figure.title, "subtitle": figure.note} if figure.note else figure.title
    spec["autosize"] = {"type": "pad"}
    spec["config"] = {**LIGHT, "background": "white", "padding": 16, "font": "sans-serif"}
    spec["datasets"] = {
        name: [{key: rounded(value) for key, value in row.items()} for row in table.to_dicts()]
        for name, table in figure.tables.items()
    }
    # A picture shows what was drawn, and not the whole legend of the page.
    drawn = {row.get("method") for rows in spec["datasets"].values() for row in rows}
    present = [] if figure.size == "small" else [label for label in labels if label in drawn]
    for layer in spec["layer"]:
        for name in ("color", "strokeDash", "shape"):
            channel = layer.get("encoding", {}).get(name, {})
            if channel.get("legend") and channel.get("field") == "method":
                channel["legend"] = {**channel["legend"], "values": present} if present else None
    return spec
