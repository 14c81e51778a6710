"""A table as a value, which the terminal, Markdown, LaTeX and HTML write down; and a document of
headings, sentences and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

Mark: TypeAlias = Literal["", "best", "second"]


@dataclass(frozen=True)
class Cell:
    text: str
    mark: Mark = ""
    title: str = ""
    """More of it, on hover."""


@dataclass(frozen=True)
class Row:
    label: str
    cells: tuple[Cell, ...]
    method: str | None = None
    """The group that it is of."""
    published: bool = False
    badges: tuple[str, ...] = ()
    """What a reader has to know before believing it."""

    @property
    def name(self) -> str:
        """With what a reader has to know."""
        return ", ".join([self.label, *self.badges])


@dataclass(frozen=True)
class Column:
    text: str
    full: str = ""
    """What it means, on hover."""
    is_text: bool = False
    """Whether it holds words, which stand at the left."""


@dataclass(frozen=True)
class Table:
    caption: str
    corner: str
    """What its rows are."""
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def signs(self) -> list[int]:
        """How wide each column is; headings may be broken between words."""
        texts = [
            [*column.text.split(), *(row.cells[index].text for row in self.rows)]
            for index, column in enumerate(self.columns)
        ]
        return [max(map(len, of_column), default=0) for of_column in texts]

    def fold(self, widths: Sequence[float], room: float) -> list[Table]:
        """In as many tables as it takes for columns of these widths to fit."""
        bands: list[list[int]] = [[]]
        room_left = room
        for index, width in enumerate(widths):
            room_left -= width
            if room_left < 0 and bands[-1]:
                bands.append([])
                room_left = room - width
            bands[-1].append(index)
        return [
            replace(
                self,
                caption=f"{self.caption}{', continued' if number else ''}",
                columns=tuple(self.columns[index] for index in band),
                rows=tuple(
                    replace(row, cells=tuple(row.cells[index] for index in band))
                    for row in self.rows
                ),
            )
            for number, band in enumerate(bands)
        ]


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Item:
    """One of a list."""

    text: str


Block: TypeAlias = Heading | Table | Item | str
