"""The page's charts as PNG files."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import vl_convert

from holdfast.report import chart_data
from holdfast.report.figure import Figure
from holdfast.report.page import Report
from holdfast.report.themes import LIGHT
from holdfast.util import files

WIDTHS = {"wide": 900, "half": 560, "small": 240}


def write_pictures(report: Report, folder: Path) -> list[Path]:
    """A file for each chart, with a legend and a title; the paths in the page's order."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure, png in pictures(report):
        path = folder / f"{re.sub(r'[^a-z0-9-]+', '-', figure.id)}.png"
        files.write_whole(path, lambda part, png=png: part.write_bytes(png))  # type: ignore[misc]
        written.append(path)
    return written


def pictures(report: Report) -> Iterator[tuple[Figure, bytes]]:
    for sections in report.sections(legend=True):
        for figure in (figure for section in sections for figure in section.figures):
            spec = self_contained(figure, report.labels)
            yield figure, vl_convert.vegalite_to_png(spec, scale=2)


def self_contained(figure: Figure, labels: tuple[str, ...]) -> dict[str, Any]:
    """The chart with its data, title, theme and width: what any Vega-Lite program draws."""
    spec = copy.deepcopy(figure.spec)
    spec["width"] = WIDTHS[figure.size]
    spec["title"] = {"text": figure.title, "subtitle": figure.note} if figure.note else figure.title
    spec["autosize"] = {"type": "pad"}
    spec["config"] = {**LIGHT, "background": "white", "padding": 16, "font": "sans-serif"}
    spec["datasets"] = {name: _rows(table, labels) for name, table in figure.tables.items()}
    # A picture shows what was drawn, and not the whole legend of the page.
    drawn = {name for table in figure.tables.values() for name in _methods(table)}
    present = [] if figure.size == "small" else [label for label in labels if label in drawn]
    for encoding in _encodings(spec):
        for channel in ("color", "strokeDash", "shape"):
            legend = encoding.get(channel, {}).get("legend")
            if legend and encoding[channel].get("field") == "method":
                encoding[channel]["legend"] = {**legend, "values": present} if present else None
    return spec


def _rows(table: pl.DataFrame, labels: tuple[str, ...]) -> list[dict[str, Any]]:
    columns = chart_data.columns(table, labels)
    if "method" in columns:
        columns["method"] = [labels[place] for place in columns["method"]]
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _methods(table: pl.DataFrame) -> set[str]:
    return set(table["method"]) if "method" in table.columns else set()


def _encodings(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for layer in spec.get("layer", []):
        yield layer.get("encoding", {})
