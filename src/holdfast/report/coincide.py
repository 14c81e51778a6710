"""Which lines of a chart lie on each other: a reader sees one where there are several."""

from __future__ import annotations

from typing import TypeAlias

import polars as pl

from holdfast.report.figure import Figure
from holdfast.util.words import enumerated

# Lines this close are drawn on each other, in shares of all values' range: one is about so thick.
NEAR = 1 / 150

_Line: TypeAlias = dict[object, float | None]
"""Heights by place."""


def coincidence(figure: Figure) -> str:
    """`The lines of bn and eata coincide, and so do those of sar and tent.`, or nothing."""
    for layer in figure.spec["layer"]:
        encoding = layer.get("encoding", {})
        by = encoding.get("strokeDash", {}).get("field")
        if by and layer["mark"]["type"] == "line":
            data = layer.get("data", figure.spec.get("data"))["name"]
            x, y = encoding["x"]["field"], encoding["y"]["field"]
            groups = [enumerated(names) for names in _groups(figure.tables[data], by, x, y)]
            others = "".join(f", and so do those of {names}" for names in groups[1:])
            return f"The lines of {groups[0]} coincide{others}." if groups else ""
    return ""


def _groups(table: pl.DataFrame, by: str, x: str, y: str) -> list[list[str]]:
    """Names of lines that coincide, two or more each."""
    lines: dict[str, _Line] = {}
    for name, place, height in table.select(by, x, y).iter_rows():
        lines.setdefault(name, {})[place] = height
    heights = [height for line in lines.values() for height in line.values() if height is not None]
    near = NEAR * (max(heights) - min(heights)) if heights else 0.0
    groups: list[list[str]] = []
    # That of a run that goes on may lie on the beginning of another.
    for name in sorted(lines, key=lambda name: -len(lines[name])):
        for group in groups:
            if _lies_on(lines[name], lines[group[0]], near):
                group.append(name)
                break
        else:
            groups.append([name])
    order = list(lines)
    return [sorted(group, key=order.index) for group in groups if len(group) > 1]


def _lies_on(line: _Line, other: _Line, near: float) -> bool:
    def is_near(height: float | None, there: float | None) -> bool:
        if height is None or there is None:
            return height is there
        return abs(height - there) <= near

    return any(height is not None for height in line.values()) and all(
        place in other and is_near(height, other[place]) for place, height in line.items()
    )
