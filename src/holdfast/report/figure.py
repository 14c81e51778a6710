"""A chart with what is said of it, and the section that it stands in."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Section:
    title: str
    about: str
    figures: tuple[Figure, ...]
    id: str
