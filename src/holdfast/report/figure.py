"""A chart with what is said of it, and the section that it stands in."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import polars as pl

from holdfast.util.words import enumerated

# Lines this close are drawn on each other, in shares of all values' range: one is about so thick.
NEAR = 1 / 150

Spec: TypeAlias = dict[str, Any]


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
                more = "".join(f", and so do those of {names}" for names in groups[1:])
                return f"The lines of {groups[0]} coincide{more}." if groups else ""
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
    """Names of lines that lie on each other, two or more each; columns: name, x and y."""
    lines: dict[str, dict[object, float | None]] = {}
    for name, at, height in table.iter_rows():
        lines.setdefault(name, {})[at] = height
    heights = table.to_series(2).drop_nulls().to_list()
    near = NEAR * (max(heights) - min(heights)) if heights else 0.0

    def lies_on(name: str, other: str) -> bool:
        pairs = [(height, lines[other].get(at, math.inf)) for at, height in lines[name].items()]
        return any(height is not None for height, _ in pairs) and all(
            height is other_height
            if height is None or other_height is None
            else abs(height - other_height) <= near
            for height, other_height in pairs
        )

    groups: list[list[str]] = []
    # That of a run that goes on may lie on the beginning of another.
    for name in sorted(lines, key=lambda name: -len(lines[name])):
        group = next((group for group in groups if lies_on(name, group[0])), None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    order = list(lines)
    return [sorted(group, key=order.index) for group in groups if len(group) > 1]
