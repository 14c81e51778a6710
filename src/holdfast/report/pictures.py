"""The page's charts as PNG files."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import vl_convert

from holdfast.report.chart_data import rounded
from holdfast.report.charts import LIGHT
from holdfast.report.figure import Figure, Spec
from holdfast.report.page import Report
from holdfast.util import files

WIDTHS = {"wide": 900, "half": 560, "small": 240}
# Long enough to tell dashes apart.
LEGEND_LINE = 24


def write_pictures(report: Report, folder: Path) -> list[Path]:
    """A file for each chart, with a legend and a title; the paths in the page's order."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure, spec in self_contained(report):
        png = vl_convert.vegalite_to_png(spec, scale=2)
        path = folder / f"{re.sub(r'[^a-z0-9-]+', '-', figure.id)}.png"
        files.write_whole(path, lambda part, png=png: part.write_bytes(png))  # type: ignore[misc]
        written.append(path)
    return written


def self_contained(report: Report) -> Iterator[tuple[Figure, Spec]]:
    """Each chart with its data, title, theme, width and legend: for any Vega-Lite program."""
    for comparison, sections in zip(report.comparisons, report.sections, strict=True):
        for figure in (figure for section in sections for figure in section.figures):
            spec = copy.deepcopy(figure.spec)
            title, note = figure.title, figure.note
            spec["width"] = WIDTHS[figure.size]
            spec["title"] = {"text": title, "subtitle": note} if note else title
            spec["autosize"] = {"type": "pad"}
            spec["config"] = {**LIGHT, "background": "white", "padding": 16, "font": "sans-serif"}
            spec["datasets"] = {
                data: [{name: rounded(v) for name, v in row.items()} for row in table.to_dicts()]
                for data, table in figure.tables.items()
            }
            if figure.size != "small":
                _add_legend(spec, report.labels, comparison.remarks)
            yield figure, spec


def _add_legend(spec: Spec, labels: Sequence[str], remarks: Mapping[str, Sequence[str]]) -> None:
    """Add a legend of its methods: of their lines where points show on hover alone, else of points.
    Bars have names of their own."""
    drawn = {row.get("method") for rows in spec["datasets"].values() for row in rows}
    encodings = [layer["encoding"] for layer in spec["layer"]]
    points = [encoding for encoding in encodings if "shape" in encoding]
    if not points:
        return
    lines = points[0].get("opacity", {}).get("value") == 0
    shown, apart = ("strokeDash", "shape") if lines else ("shape", "strokeDash")
    suffixes = json.dumps({name: ", ".join(["", *of]) for name, of in remarks.items()})
    legend = {
        "title": None,
        "orient": "bottom",
        "columns": 3 if max(map(len, labels)) < 24 else 1,
        "labelLimit": 500,
        "labelExpr": f"datum.label + ({suffixes}[datum.label] || '')",
        "values": [label for label in labels if label in drawn],
        # A dash shows on a line alone, and would fray the outline of a point.
        **({"symbolType": "stroke", "symbolSize": LEGEND_LINE**2} if lines else {}),
    }
    for encoding in encodings:
        for name in ("color", shown):
            if encoding.get(name, {}).get("field") == "method":
                encoding[name]["legend"] = legend
    if any(encoding.get(apart, {}).get("field") == "method" for encoding in encodings):
        # Vega-Lite would take it into the legend, though it has none of its own.
        spec["resolve"] = {"legend": {apart: "independent"}}
