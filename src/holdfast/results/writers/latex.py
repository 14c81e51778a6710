"""Tables in LaTeX, as a paper has them."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.results.table import Row, Table

MARKS = {"best": r"\textbf{{{}}}", "second": r"\underline{{{}}}", "": "{}"}
SIGNS = {
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


def latex(table: Table, title: str, note: str, label: str, *, rotated: bool) -> str:
    """A table with its caption; `rotated`: its headings, where columns are many."""
    heads = [escape(column.text) for column in table.columns]
    if rotated:
        heads = [rf"\rotatebox[origin=c]{{70}}{{{head}}}" for head in heads]
    rows: list[str] = []
    for row in table.rows:
        if rows and not row.published and "+" not in row.label:  # a host begins a group of rows
            rows.append(r"\addlinespace[2pt]")
        rows.append(" & ".join(_row(row)) + r" \\")
    body = "\n".join(rows)
    has_marks = any(cell.mark for row in table.rows for cell in row.cells)
    marks = " Best in bold, second best underlined." if has_marks else ""
    return rf"""\begin{{table}}[t]
\centering
\caption{{{escape(f"{title}. {table.caption}.{marks} {note}")}}}
\label{{tab:{label}}}
\resizebox{{\linewidth}}{{!}}{{%
\begin{{tabular}}{{l{"r" * len(heads)}}}
\toprule
{" & ".join([escape(table.corner), *heads])} \\
\midrule
{body}
\bottomrule
\end{{tabular}}}}
\end{{table}}
"""


def _row(row: Row) -> Iterator[str]:
    name = escape(row.name)
    yield rf"\quad\textit{{{name}}}" if row.published else name
    for cell in row.cells:
        text = MARKS[cell.mark].format(escape(cell.text))
        yield rf"\textit{{{text}}}" if row.published else text


def escape(text: str) -> str:
    """Special characters as LaTeX prints them; others of Unicode are left to utf8."""
    return "".join(SIGNS.get(sign, sign) for sign in " ".join(text.split()))
