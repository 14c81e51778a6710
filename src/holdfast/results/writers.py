"""What writes documents and tables down: on a terminal, in Markdown and in LaTeX."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from holdfast.results.table import Block, Heading, Item, Table
from holdfast.util.terminal import break_name, columns

GAP = 2
IN_MARKDOWN = {"best": "**{}**", "second": "*{}*", "": "{}"}
IN_LATEX = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
SIGNS = {
    **{sign: f"\\{sign}" for sign in "{}$&#%_"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "–": "--",
    "−": "$-$",
    "·": r"$\cdot$",
    "…": r"\dots{}",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
    "½": r"$\frac12$",
    "‘": "`",
    "’": "'",
}


# On a terminal: tables are folded to the width there is.


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
    names = [break_name("  " * row.published + row.name, width // 3) for row in table.rows]
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
            cells = (Text(cell.text, "bold" * (cell.mark == "best")) for cell in row.cells)
            drawn.add_row(Text(name), *cells, style=style)
        yield drawn


# In Markdown.


def markdown(blocks: Sequence[Block]) -> str:
    return "\n\n".join(map(_block, blocks)) + "\n"


def write_markdown(path: Path, blocks: Sequence[Block]) -> None:
    """Into a file, with the command that made it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = shlex.join(["holdfast", *sys.argv[1:]])
    path.write_text(f"{markdown(blocks)}\nMade with `{command}`.\n", encoding="utf-8")


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {escape_markdown(block.text)}"
    if isinstance(block, Table):
        return _markdown_table(block)
    return f"- {escape_markdown(block.text)}" if isinstance(block, Item) else escape_markdown(block)


def _markdown_table(table: Table) -> str:
    head = [table.corner, *(column.text for column in table.columns)]
    sides = ["---", *("---" if column.is_text else "---:" for column in table.columns)]
    lines = [[escape_markdown(text) for text in head], sides]
    for row in table.rows:
        name = escape_markdown(row.name)
        cells = (IN_MARKDOWN[cell.mark].format(escape_markdown(cell.text)) for cell in row.cells)
        lines.append([f"*{name}*" if row.published else name, *cells])
    rows = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"**{escape_markdown(table.caption)}**\n\n{rows}"


def escape_markdown(text: str) -> str:
    """Markdown's signs as they are, and no line breaks."""
    return re.sub(r"([\\`*_{}\[\]<>#|~!])", r"\\\1", " ".join(text.split()))


# In LaTeX, as a paper has tables.


def latex(table: Table, title: str, note: str, label: str, *, rotated: bool) -> str:
    """A table with its caption; `rotated`: its headings, where columns are many."""
    heads = [escape_latex(column.text) for column in table.columns]
    if rotated:
        heads = [rf"\rotatebox[origin=c]{{70}}{{{head}}}" for head in heads]
    rows: list[str] = []
    for row in table.rows:
        if rows and not row.published and "+" not in row.label:  # a host begins a group of rows
            rows.append(r"\addlinespace[2pt]")
        cells = [IN_LATEX[cell.mark].format(escape_latex(cell.text)) for cell in row.cells]
        texts = [escape_latex(row.name), *cells]
        if row.published:
            texts = [rf"\textit{{{text}}}" for text in texts]
            texts[0] = rf"\quad{texts[0]}"
        rows.append(" & ".join(texts) + r" \\")
    body = "\n".join(rows)
    has_marks = any(cell.mark for row in table.rows for cell in row.cells)
    marks = " Best in bold, second best underlined." if has_marks else ""
    return rf"""\begin{{table}}[t]
\centering
\caption{{{escape_latex(f"{title}. {table.caption}.{marks} {note}")}}}
\label{{tab:{label}}}
\resizebox{{\linewidth}}{{!}}{{%
\begin{{tabular}}{{l{"r" * len(heads)}}}
\toprule
{" & ".join([escape_latex(table.corner), *heads])} \\
\midrule
{body}
\bottomrule
\end{{tabular}}}}
\end{{table}}
"""


def escape_latex(text: str) -> str:
    """Special characters as LaTeX prints them; others of Unicode are left to utf8."""
    return "".join(SIGNS.get(sign, sign) for sign in " ".join(text.split()))
