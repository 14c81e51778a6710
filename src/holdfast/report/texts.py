"""The tables in the paper's shape, in Markdown and in LaTeX."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.report.finding import finding, others
from holdfast.report.page import Report
from holdfast.results import writers
from holdfast.results.health import estimate_table
from holdfast.results.table import Block, Heading, Item
from holdfast.results.tables import accuracy_table, alarm_lines, metrics_table, notes
from holdfast.results.visits import visit_table


def markdown(report: Report) -> str:
    return writers.markdown(list(_blocks(report)))


def _blocks(report: Report) -> Iterator[Block]:
    first, *more = report.sentences
    yield Heading(first, level=1)
    if more:
        yield " ".join(more)
    for comparison in report.comparisons:
        published = report.published(comparison)
        yield Heading(comparison.title)
        sentences = [finding(comparison), *others(comparison)]
        yield from (text for text in sentences if text != report.headline)
        yield accuracy_table(comparison, published.rows)
        key = "In bold the best, in italics the second best."
        yield " ".join(filter(None, (key, *notes(comparison.groups), published.note)))
        yield metrics_table(comparison.groups)
        yield from filter(None, (visit_table(comparison), estimate_table(comparison)))
        yield from map(Item, alarm_lines(comparison))
    if report.gathered.notes:
        yield Heading("What could not be read")
        yield from (Item(f"{note.path}: {note.text}") for note in report.gathered.notes)


def latex(report: Report) -> str:
    """Tables for a paper: \\input{} the file where they should stand."""
    tables = [
        "% Made by holdfast report. Needs \\usepackage{booktabs,graphicx}.\n"
        f"% {' '.join(report.headline.split())}\n"
    ]
    for index, comparison in enumerate(report.comparisons):
        accuracy = accuracy_table(comparison, report.published(comparison).rows)
        for name, table in (("accuracy", accuracy), ("metrics", metrics_table(comparison.groups))):
            note, label = " ".join(notes(comparison.groups)), f"{name}-{index}"
            rotated = table is accuracy
            tables.append(writers.latex(table, comparison.title, note, label, rotated=rotated))
    return tables[0] + "\n".join(tables[1:])
