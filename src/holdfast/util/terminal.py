"""What people read: with colour on a terminal, plain and never cut elsewhere."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Mapping

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

# Longer than any line: what goes into a file or another program is not wrapped.
UNBOUNDED = 10_000


def as_text(content: RenderableType) -> str:
    """Plain text, each line as long as it needs to be."""
    file = io.StringIO()
    Console(file=file, width=UNBOUNDED, force_terminal=False, color_system=None).print(content)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def show(content: RenderableType) -> None:
    """Print to the standard output."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an old console may have no Greek letters
    console = Console()
    if console.is_terminal:
        console.print(content)
    else:
        print(as_text(content))


def columns(*headings: str, rows: Iterable[Iterable[str]] = ()) -> Table:
    """A table without lines; without headings, a grid."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=bool(headings))
    for heading in headings:
        table.add_column(Text(heading, style="bold"), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def facts(named: Mapping[str, str]) -> Table:
    """A grid of names and what they stand for; what is empty is left out."""
    table = columns()
    for name, meaning in named.items():
        if meaning:
            table.add_row(Text(name, style="bold"), Text(meaning))
    return table


def break_name(name: str, width: int) -> str:
    """In lines of at most so many signs, as far as it can be broken after punctuation."""
    lines = [""]
    for piece in re.split(r"(?<=[ +,/])", name):
        if lines[-1].strip() and len(lines[-1] + piece) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)
