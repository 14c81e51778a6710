"""An experiment's answer as something to read: paragraphs and tables.

What is said is decided here, once; `results.writers` only write it down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from holdfast.bench.plan import short
from holdfast.paper.answer import Answer, Grid, GridRow
from holdfast.paper.comparable import TOLERANCE
from holdfast.paper.experiments import experiments
from holdfast.paper.measures import FIFTEEN, SIXTEEN
from holdfast.results.group import NONE, Number
from holdfast.results.stored import IDLE, IDLE_NOTE
from holdfast.results.table import Block, Cell, Column, Heading, Row, Table


def document(answer: Answer) -> list[Block]:
    """All there is to say, in order."""
    experiment = answer.experiment
    beside = answer.has_published and not answer.differences
    blocks: list[Block] = [
        Heading(f"{experiment.id}: {experiment.where}"),
        experiment.asks,
        "; ".join(f"{name}: {fact}" for name, fact in answer.facts.items()) + ".",
    ]
    for grid in answer.grids:
        blocks.append(_table(grid, experiment.rows, beside))
        papers = grid.published if beside else ()
        blocks += _changes("Change over the host", grid, experiment.rows, grid.rows, papers)
    if answer.idle:
        steps = "; ".join(f"{name}: {steps}" for name, steps in answer.idle.items())
        blocks += [f"{steps}.", IDLE_NOTE]
    blocks += [*_verdicts(answer), *_comparison(answer, beside)]
    if finding := experiment.printed.finding:
        blocks.append(f"The paper finds, on {experiment.benchmark.data}: {finding}")
    labels = {line.label for line in experiment.lines}
    if any("Ours" in label for label in labels):
        blocks.append("Ours is the paper's name for debias.")
    if experiment.note:
        blocks.append(experiment.note)
    whole = experiments().get(experiment.id, experiment)
    left_out = {line.label for line in whole.lines} - labels
    if left_out:
        blocks.append(f"Rows of the paper that were not asked for: {', '.join(sorted(left_out))}.")
    if answer.missing:
        blocks.append(f"Not finished, and so left empty: {', '.join(answer.missing)}.")
    return blocks


def _table(grid: Grid, rows: str, beside: bool) -> Table:
    """Ours, and under each row the published one where it may stand there."""
    published = {row.label: row for row in grid.published} if beside else {}
    lines = []
    for row in grid.rows:
        badges = (IDLE,) if row.idle else ()
        lines.append(Row(row.label, _cells(grid, grid.columns, row), badges=badges))
        if theirs := published.get(row.label):
            lines.append(Row("published", _cells(grid, grid.columns, theirs), published=True))
    return Table(grid.measure.title, rows, _columns(grid.columns), tuple(lines))


def _published_table(grid: Grid, rows: str) -> Table:
    names = [name for name in grid.columns if any(name in row.cells for row in grid.published)]
    lines = tuple(Row(row.label, _cells(grid, names, row)) for row in grid.published)
    title = f"Published: {grid.measure.title}"
    if FIFTEEN in names:
        title += f" ({FIFTEEN} is not printed, but follows from the row)"
    return Table(title, rows, _columns(names), lines)


def _columns(names: Iterable[str], prefix: str = "") -> tuple[Column, ...]:
    return tuple(Column(prefix + short(name), name) for name in names)


def _cells(grid: Grid, names: Sequence[str], row: GridRow, sign: str = "") -> tuple[Cell, ...]:
    return tuple(Cell(_text(grid, name, row.cells.get(name, Number()), sign)) for name in names)


def _text(grid: Grid, name: str, number: Number, sign: str = "") -> str:
    """With its spread in columns that sum up others: there is no room for it in all of them."""
    return number.text(grid.measure.digits, spread=name in grid.summary, sign=sign)


def _changes(
    title: str, grid: Grid, rows: str, ours: tuple[GridRow, ...], papers: tuple[GridRow, ...] = ()
) -> Iterator[Table]:
    """What plug-ins add to their hosts; and in the paper, where it may stand beside it."""
    changes, in_paper = grid.changes(ours), {row.label: row for row in grid.changes(papers)}
    columns, cells = _change_cells(grid, changes)
    paper_columns, paper_cells = _change_cells(
        grid, [in_paper.get(change.label, GridRow("")) for change in changes], "paper: "
    )
    lines = tuple(
        Row(
            f"{_named(change.label, rows)} − {change.host}",
            (*cells[index], *paper_cells[index]),
            badges=(IDLE,) if change.idle else (),
        )
        for index, change in enumerate(changes)
    )
    if lines and columns:
        yield Table(title, "change", (*columns, *paper_columns), lines)


def _change_cells(
    grid: Grid, changes: Sequence[GridRow], prefix: str = ""
) -> tuple[list[Column], list[list[Cell]]]:
    """The columns that sum up others, and in how many of those others the number is higher."""
    names = [name for name in grid.summary if any(name in change.cells for change in changes)]
    columns = list(_columns(names, prefix))
    cells = [list(_cells(grid, names, change, "+")) for change in changes]
    details = [
        [number.value > 0 for name, number in change.cells.items() if name not in grid.summary]
        for change in changes
    ]
    if any(details):
        columns.append(Column(f"{prefix}higher in"))
        for line, higher in zip(cells, details, strict=True):
            line.append(Cell(f"{sum(higher)} of {len(higher)}" if higher else NONE))
    return columns, cells


def _named(label: str, rows: str) -> str:
    return label if rows == "method" else f"{rows} = {label}"


def _verdicts(answer: Answer) -> Iterator[str]:
    """Whether what was added helped, and which value of a sweep was best, as the numbers are."""
    for grid in answer.grids:
        if not grid.measure.gains or SIXTEEN not in grid.measure.summary:
            continue
        if SIXTEEN not in grid.columns:  # by batch size
            for change in grid.changes(grid.rows):
                above = [name for name, cell in change.cells.items() if cell.value > 0]
                below = [name for name in change.cells if name not in above]
                yield (
                    f"{change.label} is above {change.host} at batch size "
                    f"{', '.join(above) or 'none'}, and not at {', '.join(below) or 'none'}."
                )
            continue
        all_changes, rows = grid.changes(grid.rows), answer.experiment.rows
        changes = [change for change in all_changes if SIXTEEN in change.cells]
        if changes:
            yield _helped(grid, changes, rows)
        if rows != "method":
            yield from _best(grid, {str(change.host) for change in all_changes}, rows)


def _helped(grid: Grid, changes: Sequence[GridRow], rows: str) -> str:
    worse = [change for change in changes if change.cells[SIXTEEN].value <= 0]
    count = f"{len(changes) - len(worse)} of {len(changes)}"
    text = f"What is added raises the mean over 16 domains in {count} cases here"
    if worse:
        named = (
            f"{_named(change.label, rows)} ({_text(grid, SIXTEEN, change.cells[SIXTEEN], '+')})"
            for change in worse
        )
        text += f"; it does not help in {', '.join(named)}"
    return text + "."


def _best(grid: Grid, hosts: set[str], setting: str) -> Iterator[str]:
    """The best value of a sweep, or those that cannot be told from it in print."""

    def best(rows: Iterable[GridRow]) -> str:
        known = {
            row.label: _text(grid, SIXTEEN, row.cells[SIXTEEN])
            for row in sorted(rows, key=lambda row: -row.cells[SIXTEEN].value)
        }
        top = next(iter(known.values()))
        return f"{', '.join(label for label, text in known.items() if text == top)} ({top})"

    ours, papers = (
        [
            row
            for row in rows
            if row.label not in hosts and SIXTEEN in row.cells and SIXTEEN not in row.idle
        ]
        for rows in (grid.rows, grid.published)
    )
    if ours:
        in_paper = f"; in the paper: {best(papers)}" if len(papers) > 1 else ""
        yield f"Best {setting} here: {best(ours)}{in_paper}."


def _comparison(answer: Answer, beside: bool) -> Iterator[Block]:
    prints = "" if answer.has_published else " Of this figure it prints no numbers."
    if answer.differences:
        apart = "" if prints else " The published numbers stand apart, for the pattern alone."
        reasons = "; ".join(answer.differences)
        yield f"NOT COMPARABLE with the paper: {reasons}.{prints}{apart}"
    else:
        yield (
            "Comparable with the paper: data, model and protocol are the same, and the model that "
            f"never adapts is within {TOLERANCE:g} points of its Source row in every domain. The "
            f"paper has means of {answer.experiment.benchmark.runs} runs; here seeds are "
            f"{answer.facts['seeds']}.{prints}"
        )
    if not beside:
        for grid in answer.grids:
            if grid.published:
                rows, title = answer.experiment.rows, "Published: change over the host"
                yield _published_table(grid, rows)
                yield from _changes(title, grid, rows, grid.published)
