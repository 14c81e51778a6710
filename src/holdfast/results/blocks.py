"""What people read, made of headings, sentences and tables: on a terminal, or in Markdown."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from holdfast.util.terminal import columns

GAP = 2


@dataclass(frozen=True)
class Sheet:
    """A table as texts, some of them in bold: the first column names the rows."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str | Text, ...], ...]


@dataclass(frozen=True)
class Heading:
    text: str


Block: TypeAlias = Heading | Sheet | str


@dataclass(frozen=True)
class Page:
    """For `holdfast.util.terminal.show`: sheets are folded to the width there is."""

    blocks: Sequence[Block]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        before: Block = ""
        for block in self.blocks:
            if isinstance(block, Sheet) or isinstance(before, Sheet):
                yield Text("")
            if isinstance(block, Heading):
                yield Text(block.text, style="bold")
            elif isinstance(block, Sheet):
                yield Text(block.title, style="bold")
                yield from (_table(band) for band in fold(block, options.max_width))
            else:
                yield Text(block, style="yellow" if block.startswith("NOT") else "")
            before = block


def fold(sheet: Sheet, width: int) -> list[Sheet]:
    """The sheet in as many bands as it takes, each with the first column: of names, which may take
    several lines where they are long. Numbers are never broken."""
    names = [break_name(str(row[0]), width // 3) for row in sheet.rows]
    side = max(len(line) for name in (sheet.header[0], *names) for line in name.split("\n"))
    bands: list[list[int]] = [[]]
    room = 0
    for number, cells in enumerate(zip(sheet.header, *sheet.rows, strict=True)):
        if not number:
            continue
        needs = GAP + max(map(len, cells))
        if bands[-1] and needs > room:
            bands.append([])
        if not bands[-1]:
            room = width - side
        room -= needs
        bands[-1].append(number)
    return [
        Sheet(
            sheet.title,
            (sheet.header[0], *(sheet.header[number] for number in band)),
            tuple(
                (name, *(row[number] for number in band))
                for name, row in zip(names, sheet.rows, strict=True)
            ),
        )
        for band in bands
    ]


def break_name(name: str, width: int) -> str:
    """In lines of at most so many signs, as far as it can be broken after punctuation."""
    lines = [""]
    for piece in re.split(r"(?<=[ +,/])", name):
        if lines[-1].strip() and len(lines[-1] + piece) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _table(sheet: Sheet) -> RenderableType:
    table = columns(*sheet.header)
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for row in sheet.rows:
        cells = (cell if isinstance(cell, Text) else Text(cell) for cell in row)
        table.add_row(*cells, style="dim" if str(row[0]).startswith(" ") else "")
    return table


# In Markdown.


def markdown(blocks: Sequence[Block]) -> str:
    parts = []
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"## {block.text}")
        elif isinstance(block, Sheet):
            parts.append(f"**{block.title}**")
            lines = [block.header, ("---", *("---:" for _ in block.header[1:])), *block.rows]
            parts.append(
                "\n".join(f"| {' | '.join(map(_escape, map(str, line)))} |" for line in lines)
            )
        else:
            parts.append(_escape(block))
    return "\n\n".join(parts) + "\n"


def _escape(text: str) -> str:
    """Underscores, stars and bars as they are."""
    return "".join(f"\\{sign}" if sign in "_*|<>" else sign for sign in text.strip())


def write_markdown(path: Path, blocks: Sequence[Block]) -> None:
    """Into a file, with the command that made it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = shlex.join(["holdfast", *sys.argv[1:]])
    path.write_text(f"{markdown(blocks)}\nMade with `{command}`.\n", encoding="utf-8")
