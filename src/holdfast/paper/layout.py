"""An experiment's answer as something to read: paragraphs and sheets.

What is said is decided here, once; `blocks.Page` and `blocks.markdown` only write it down.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from holdfast.bench.names import short
from holdfast.paper.answer import Answer, Change, Grid, Number, Row
from holdfast.paper.comparable import TOLERANCE
from holdfast.paper.experiments import Experiment, experiments
from holdfast.paper.measures import FIFTEEN, SIXTEEN
from holdfast.results.acting import idle_notes
from holdfast.results.blocks import Block, Heading, Sheet

NONE = "–"


def lay_out(answer: Answer) -> list[Block]:
    """All there is to say, in order."""
    experiment = answer.experiment
    beside = answer.has_published and not answer.differences
    found: list[Block] = [
        Heading(f"{experiment.id}: {experiment.where}"),
        experiment.asks,
        "; ".join(f"{name}: {what}" for name, what in answer.facts.items()) + ".",
    ]
    for grid in answer.grids:
        found.append(_sheet(grid, experiment.rows, beside))
        papers = grid.published_changes if beside else ()
        found += _changes("Change over the host", grid, experiment.rows, grid.changes, papers)
    found += [*idle_notes(answer.idle), *_verdicts(answer), *_comparison(answer, beside)]
    if experiment.finding:
        found.append(f"The paper finds, on {experiment.benchmark.data}: {experiment.finding}")
    if any("Ours" in line.label for line in experiment.lines):
        found.append("Ours is the paper's name for debias.")
    if experiment.note:
        found.append(experiment.note)
    left_out = set(_labels(experiments().get(experiment.id, experiment))) - set(_labels(experiment))
    if left_out:
        found.append(f"Rows of the paper that were not asked for: {', '.join(sorted(left_out))}.")
    if answer.missing:
        found.append(f"Not finished, and so left empty: {', '.join(answer.missing)}.")
    return found


def _labels(experiment: Experiment) -> list[str]:
    return [line.label for line in experiment.lines]


def _sheet(grid: Grid, rows: str, beside: bool) -> Sheet:
    """Ours, and under each row the published one where it may stand there."""
    published = {row.label: row for row in grid.published} if beside else {}
    found = []
    for row in grid.rows:
        found.append(_texts(grid, grid.columns, row.marked, row))
        if row.label in published:
            found.append(_texts(grid, grid.columns, "  published", published[row.label]))
    return Sheet(grid.measure.title, (rows, *map(short, grid.columns)), tuple(found))


def _published_sheet(grid: Grid, rows: str) -> Sheet:
    names = [name for name in grid.columns if any(name in row.cells for row in grid.published)]
    found = tuple(_texts(grid, names, row.label, row) for row in grid.published)
    title = f"Published: {grid.measure.title}"
    if FIFTEEN in names:
        title += f" ({FIFTEEN} is not printed, but follows from the row)"
    return Sheet(title, (rows, *map(short, names)), found)


def _texts(grid: Grid, names: Sequence[str], label: str, row: Row) -> tuple[str, ...]:
    return (label, *(_number(grid, name, row.cells.get(name)) for name in names))


def _number(grid: Grid, name: str, number: Number | None, sign: str = "") -> str:
    """With its spread in columns that sum up others: there is no room for it in all of them."""
    if number is None:
        return NONE
    digits = grid.measure.digits
    text = f"{number.value:{sign}.{digits}f}".replace("-", "−")
    shown = number.std is not None and name in grid.summary
    return f"{text} ± {number.std:.{digits}f}" if shown else text


def _changes(
    title: str, grid: Grid, rows: str, ours: Sequence[Change], papers: Sequence[Change] = ()
) -> Iterator[Sheet]:
    """What plug-ins add to their hosts; and in the paper, where it may stand beside it."""
    in_paper = {change.label: change for change in papers}
    here = [name for name in grid.columns if any(name in c.cells for c in ours)]
    here = [name for name in here if name in grid.summary]
    there = [name for name in here if any(name in c.cells for c in papers)]
    counted, paper_counted = any(c.of for c in ours), any(c.of for c in papers)
    header = (
        "change",
        *map(short, here),
        *(["higher in"] if counted else []),
        *(f"paper: {short(name)}" for name in there),
        *(["paper: higher in"] if paper_counted else []),
    )
    found = []
    for change in ours:
        paper = in_paper.get(change.label)
        cells = {} if paper is None else paper.cells
        found.append(
            (
                f"{_named(change.label, rows)} − {change.host} {change.mark}".rstrip(),
                *(_number(grid, name, change.cells.get(name), "+") for name in here),
                *([_count(change)] if counted else []),
                *(_number(grid, name, cells.get(name), "+") for name in there),
                *([_count(paper)] if paper_counted else []),
            )
        )
    if found and (here or counted):
        yield Sheet(title, header, tuple(found))


def _named(label: str, rows: str) -> str:
    return label if rows == "method" else f"{rows} = {label}"


def _count(change: Change | None) -> str:
    return f"{change.higher} of {change.of}" if change is not None and change.of else NONE


def _verdicts(answer: Answer) -> Iterator[str]:
    """Whether what was added helped, and which value of a sweep was best, as the numbers are."""
    for grid in answer.grids:
        if not grid.measure.gains or SIXTEEN not in grid.measure.summary:
            continue
        if SIXTEEN not in grid.columns:  # by batch size
            for change in grid.changes:
                above = [name for name, cell in change.cells.items() if cell.value > 0]
                below = [name for name in change.cells if name not in above]
                yield (
                    f"{change.label} is above {change.host} at batch size "
                    f"{', '.join(above) or 'none'}, and not at {', '.join(below) or 'none'}."
                )
            continue
        changes = [change for change in grid.changes if SIXTEEN in change.cells]
        rows = answer.experiment.rows
        if changes:
            yield _helped(grid, changes, rows)
        if rows != "method":
            yield from _best(grid, {change.host for change in grid.changes}, rows)


def _helped(grid: Grid, changes: Sequence[Change], rows: str) -> str:
    worse = [change for change in changes if change.cells[SIXTEEN].value <= 0]
    count = f"{len(changes) - len(worse)} of {len(changes)}"
    text = f"What is added raises the mean over 16 domains in {count} cases here"
    if worse:
        gains = (_number(grid, SIXTEEN, one.cells[SIXTEEN], "+") for one in worse)
        named = (
            f"{_named(one.label, rows)} ({gain})" for one, gain in zip(worse, gains, strict=True)
        )
        text += f"; it does not help in {', '.join(named)}"
    return text + "."


def _best(grid: Grid, hosts: set[str], what: str) -> Iterator[str]:
    """The best value of a sweep, or those that cannot be told from it in print."""

    def best(rows: Iterable[Row]) -> str:
        known = {
            row.label: _number(grid, SIXTEEN, row.cells[SIXTEEN])
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
        yield f"Best {what} here: {best(ours)}{in_paper}."


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
                rows, changes = answer.experiment.rows, grid.published_changes
                yield _published_sheet(grid, rows)
                yield from _changes("Published: change over the host", grid, rows, changes)
