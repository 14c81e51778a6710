"""A chart with what is said of it, and the section that it stands in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import polars as pl

from holdfast.util.words import enumerated

# Lines this close are drawn on each other, in shares of all values' range: one is about so thick.
NEAR = 1 / 150

Spec: TypeAlias = dict[str, Any]
_Line: TypeAlias = dict[object, float | None]
"""Heights by place."""


@dataclass(frozen=True)
class Figure:
    """A chart, what it shows in words, and its data by name."""

    id: str
    title: str
    caption: str
    spec: Spec
    tables: dict[str, pl.DataFrame]
    size: str = "half"
    """half, wide or small."""

    @cached_property
    def note(self) -> str:
        """What cannot be seen in it: `The lines of bn and eata coincide, and so do those of sar
        and tent.`, or nothing."""
        for layer in self.spec["layer"]:
            encoding = layer.get("encoding", {})
            by = encoding.get("strokeDash", {}).get("field")
            if by and layer["mark"]["type"] == "line":
                table = self.tables[layer.get("data", self.spec.get("data"))["name"]]
                x, y = encoding["x"]["field"], encoding["y"]["field"]
                groups = [enumerated(names) for names in _coinciding(table.select(by, x, y))]
                others = "".join(f", and so do those of {names}" for names in groups[1:])
                return f"The lines of {groups[0]} coincide{others}." if groups else ""
        return ""

    @property
    def words(self) -> str:
        return " ".join(filter(None, (self.caption, self.note)))

    def renamed(self, pattern: str) -> Figure:
        """It and its data under names that no others have: `pattern` is such as `c0-{}`."""

        def with_data(part: Spec) -> Spec:
            name = part.get("data", {}).get("name")
            return part if name is None else {**part, "data": {"name": pattern.format(name)}}

        return replace(
            self,
            id=pattern.format(self.id),
            spec={**with_data(self.spec), "layer": [*map(with_data, self.spec["layer"])]},
            tables={pattern.format(name): table for name, table in self.tables.items()},
        )


@dataclass(frozen=True)
class Section:
    title: str
    about: str
    figures: tuple[Figure, ...]
    id: str


def _coinciding(table: pl.DataFrame) -> list[list[str]]:
    """Names of lines that lie on each other, two or more each; columns: name, place and height."""
    lines: dict[str, _Line] = {}
    for name, place, height in table.iter_rows():
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
