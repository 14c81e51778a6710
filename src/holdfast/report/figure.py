"""A chart with what is said of it, and the section that it stands in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from holdfast.report.charts import Spec


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
    note: str = ""
    """What cannot be seen in it."""

    @property
    def words(self) -> str:
        return " ".join(filter(None, (self.caption, self.note)))

    def prefixed(self, prefix: str) -> Figure:
        """Under names that those of another comparison do not have."""
        names = {name: prefix + name for name in self.tables}
        return replace(
            self,
            id=prefix + self.id,
            spec=with_data(self.spec, names),
            tables={names[name]: table for name, table in self.tables.items()},
        )


def with_data(spec: Spec, names: Mapping[str, str]) -> Spec:
    """The same chart of data with other names."""

    def renamed(part: Spec) -> Spec:
        name = part.get("data", {}).get("name")
        return {**part, "data": {"name": names[name]}} if name in names else part

    return {**renamed(spec), "layer": [renamed(layer) for layer in spec["layer"]]}


@dataclass(frozen=True)
class Section:
    title: str
    about: str
    figures: tuple[Figure, ...]
    id: str
