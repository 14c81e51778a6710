"""Documents in Markdown."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.results.table import Block, Heading, Item, Row, Table

MARKS = {"best": "**{}**", "second": "*{}*", "": "{}"}


def markdown(blocks: Sequence[Block]) -> str:
    return "\n\n".join(map(_block, blocks)) + "\n"


def write_markdown(path: Path, blocks: Sequence[Block]) -> None:
    """Into a file, with the command that made it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = shlex.join(["holdfast", *sys.argv[1:]])
    path.write_text(f"{markdown(blocks)}\nMade with `{command}`.\n", encoding="utf-8")


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {escape(block.text)}"
    if isinstance(block, Table):
        return _table(block)
    return f"- {escape(block.text)}" if isinstance(block, Item) else escape(block)


def _table(table: Table) -> str:
    head = [table.corner, *(column.text for column in table.columns)]
    sides = ["---", *("---" if column.is_text else "---:" for column in table.columns)]
    lines = [map(escape, head), sides, *map(_row, table.rows)]
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"**{escape(table.caption)}**\n\n{rows}"


def _row(row: Row) -> Iterator[str]:
    yield f"*{escape(row.name)}*" if row.published else escape(row.name)
    for cell in row.cells:
        yield MARKS[cell.mark].format(escape(cell.text))


def escape(text: str) -> str:
    """Markdown's signs as they are, and no line breaks."""
    return re.sub(r"([\\`*_{}\[\]<>#|~!])", r"\\\1", " ".join(text.split()))
