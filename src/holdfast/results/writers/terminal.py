"""Documents on a terminal: tables are folded to the width there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from holdfast.results.table import Block, Cell, Heading, Item, Row, Table
from holdfast.util.terminal import break_name, columns

GAP = 2
STYLES = {"best": "bold", "second": "", "": ""}


@dataclass(frozen=True)
class Page:
    """For `holdfast.util.terminal.show`."""

    blocks: Sequence[Block]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        before: Block = ""
        for block in self.blocks:
            if isinstance(block, Table) or isinstance(before, Table):
                yield Text("")
            if isinstance(block, Table):
                yield Text(block.caption, style="bold")
                yield from _bands(block, options.max_width)
            elif isinstance(block, Heading):
                yield Text(block.text, style="bold")
            else:
                text = f"- {block.text}" if isinstance(block, Item) else block
                yield Text(text, style="yellow" if text.startswith("NOT") else "")
            before = block


def _bands(table: Table, width: int) -> Iterator[RenderableType]:
    """Each with the first column: of names, which may take several lines where they are long.
    Numbers are never broken."""
    names = [break_name(_name(row), width // 3) for row in table.rows]
    side = max(len(line) for name in (table.corner, *names) for line in name.split("\n"))
    # Headings are not broken here.
    headings = (len(column.text) for column in table.columns)
    widths = [GAP + max(pair) for pair in zip(headings, table.signs(), strict=True)]
    for band in table.fold(widths, width - side):
        drawn = columns(band.corner, *(column.text for column in band.columns))
        for column, drawn_column in zip(band.columns, drawn.columns[1:], strict=True):
            if not column.is_text:
                drawn_column.justify, drawn_column.no_wrap = "right", True
        for name, row in zip(names, band.rows, strict=True):
            style = "dim" if row.published else ""
            drawn.add_row(Text(name), *map(_cell, row.cells), style=style)
        yield drawn


def _name(row: Row) -> str:
    return f"  {row.name}" if row.published else row.name


def _cell(cell: Cell) -> Text:
    return Text(cell.text, STYLES[cell.mark])
