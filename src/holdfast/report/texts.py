"""The tables in the paper's shape, in Markdown and in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from holdfast.report.finding import finding, others
from holdfast.report.page import Report
from holdfast.results.compare import Comparison
from holdfast.results.tables import (
    Cell,
    Row,
    Table,
    accuracy_table,
    alarm_lines,
    figures_table,
    idle_note,
)

# Markdown.


def markdown(report: Report) -> str:
    first, *rest = report.sentences
    parts = [f"# {_plain(first)}", *([_plain(" ".join(rest))] if rest else [])]
    for one in report.comparisons:
        published = report.published(one)
        parts.append(f"## {_plain(one.title)}")
        said = [finding(one), *others(one)]
        parts += [_plain(text) for text in said if text != report.headline]
        parts.append(_markdown_table(accuracy_table(one, published.rows)))
        notes = " ".join(filter(None, (idle_note(one), published.note)))
        parts.append(f"**Best**, *second best*. {_plain(notes)}")
        parts.append(_markdown_table(figures_table(one)))
        parts += [f"- {_plain(line)}" for line in alarm_lines(one)]
    if report.gathered.notes:
        parts.append("## What could not be read")
        parts += [f"- {_plain(one.path)}: {_plain(one.text)}" for one in report.gathered.notes]
    return "\n\n".join(parts) + "\n"


def _markdown_table(table: Table) -> str:
    head = [table.corner, *(one.text for one in table.columns)]
    lines = [
        f"| {' | '.join(map(_plain, head))} |",
        f"|{'|'.join(['---', *['---:'] * len(table.columns)])}|",
        *(f"| {' | '.join(_markdown_row(row))} |" for row in table.rows),
    ]
    return f"{_plain(table.caption)}\n\n" + "\n".join(lines)


def _markdown_row(row: Row) -> Iterator[str]:
    name = ", ".join([row.label, *row.badges])
    yield f"*{_plain(name)}*" if row.published else _plain(name)
    for cell in row.cells:
        yield _marked(cell, _plain, "**{}**", "*{}*")


def _plain(text: str) -> str:
    """Markdown's signs as they are, and no line breaks."""
    flat = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]<>#|~!])", r"\\\1", flat)


# LaTeX.

_TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
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


def latex(report: Report) -> str:
    """Tables for a paper: \\input{} the file where they should stand."""
    head = (
        "% Made by holdfast report. Needs \\usepackage{booktabs,graphicx}.\n"
        f"% {_one_line(report.headline)}\n"
    )
    return head + "\n".join(
        text
        for place, one in enumerate(report.comparisons)
        for text in _latex_part(report, one, place)
    )


def _latex_part(report: Report, one: Comparison, place: int) -> Iterator[str]:
    accuracy, note = accuracy_table(one, report.published(one).rows), idle_note(one)
    yield _latex_table(accuracy, one.title, note, f"accuracy-{place}", rotated=True)
    yield _latex_table(figures_table(one), one.title, note, f"figures-{place}", rotated=False)


def _latex_table(table: Table, title: str, note: str, label: str, *, rotated: bool) -> str:
    heads = [tex(one.text) for one in table.columns]
    if rotated:
        heads = [rf"\rotatebox[origin=c]{{70}}{{{one}}}" for one in heads]
    rows: list[str] = []
    for row in table.rows:
        if not row.published and rows and _begins_group(row):
            rows.append(r"\addlinespace[2pt]")
        rows.append(" & ".join(_latex_row(row)) + r" \\")
    body = "\n".join(rows)
    marks = " Best in bold, second best underlined." if rotated else ""
    return rf"""\begin{{table}}[t]
\centering
\caption{{{tex(f"{title}. {table.caption}.{marks} {note}")}}}
\label{{tab:{label}}}
\resizebox{{\linewidth}}{{!}}{{%
\begin{{tabular}}{{l{"r" * len(heads)}}}
\toprule
{" & ".join([tex(table.corner), *heads])} \\
\midrule
{body}
\bottomrule
\end{{tabular}}}}
\end{{table}}
"""


def _begins_group(row: Row) -> bool:
    return "+" not in row.label


def _latex_row(row: Row) -> Iterator[str]:
    name = tex(", ".join([row.label, *row.badges]))
    yield rf"\quad\textit{{{name}}}" if row.published else name
    for cell in row.cells:
        text = _marked(cell, tex, r"\textbf{{{}}}", r"\underline{{{}}}")
        yield rf"\textit{{{text}}}" if row.published else text


def tex(text: str) -> str:
    """Special characters as LaTeX prints them; others of Unicode are left to utf8."""
    return "".join(_TEX.get(sign, sign) for sign in " ".join(text.split()))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _marked(cell: Cell, escape: Callable[[str], str], best: str, second: str) -> str:
    text = escape(cell.text)
    form = {"best": best, "second": second}.get(cell.mark)
    return form.format(text) if form else text
