"""The tables at the end of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, ConsoleOptions, Group
from rich.table import Table
from rich.text import Text

from holdfast.bench.blocks import Block, Heading, Sheet
from holdfast.bench.names import short
from holdfast.bench.results import Result, group, spread
from holdfast.bench.store import RunFolder
from holdfast.data.layouts import CLEAN
from holdfast.terminal import UNBOUNDED, columns


def results_table(folders: Iterable[RunFolder]) -> Group:
    """Accuracy by domain, and a line of figures for each method."""
    results = group(folders)
    return Group(
        Text(f"{_heading(results)}: accuracy in %", style="bold"),
        DomainsTable(results),
        Text(""),
        figures_table(results),
    )


@dataclass(frozen=True)
class DomainsTable:
    """Methods × domains, as in the paper; turned where that is too wide. The best in bold."""

    results: Sequence[Result]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        domains = list(dict.fromkeys(name for one in self.results for name in one.domains))
        scores = [[one.accuracy(name) for one in self.results] for name in domains]
        cells = [emphasised(each) for each in scores]
        names, titles = [short(name) for name in domains], [one.title for one in self.results]
        wide = filled("method", names, titles, list(zip(*cells, strict=True)))
        unbounded = options.update(max_width=UNBOUNDED)
        fits = console.measure(wide, options=unbounded).maximum <= options.max_width
        yield wide if fits else filled("domain", titles, names, cells)


def filled(
    corner: str, header: Sequence[str], side: Sequence[str], cells: Sequence[Sequence[Text]]
) -> Table:
    table = columns(corner, *header)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, row in zip(side, cells, strict=True):
        table.add_row(Text(name), *row)
    return table


def emphasised(scores: Sequence[float]) -> list[Text]:
    """Scores in %, the best one in bold."""
    best = max((score for score in scores if not math.isnan(score)), default=math.nan)
    return [
        Text("–" if math.isnan(score) else f"{score:.2f}", "bold" if score == best else "")
        for score in scores
    ]


def figures_table(results: Sequence[Result]) -> Table:
    """One line a method: means over domains ± standard deviation over seeds, and the rest."""
    sheet = figures_sheet(results)
    cells = [[Text(cell) for cell in row[1:]] for row in sheet.rows]
    return filled(sheet.header[0], sheet.header[1:], [row[0] for row in sheet.rows], cells)


def figures_sheet(results: Sequence[Result]) -> Sheet:
    whole = sorted({len(one.domains) for one in results})
    corrupted = sorted({len(set(one.domains) - {CLEAN}) for one in results})
    header = (
        "method",
        *(f"mean of {'/'.join(map(str, counts))}" for counts in (whole, corrupted)),
        "ECE %",
        "bias %",
        "% > 0.95",
        "ms a batch",
        "p95",
        "images/s",
        "MB",
        "collapse",
    )
    return Sheet("Figures", header, tuple(map(_figures, results)))


def _figures(one: Result) -> tuple[str, ...]:
    collapsed = one.values("collapse")
    return (
        one.title,
        _figure(one, "mean_accuracy"),
        _figure(one, "mean_accuracy_corrupted"),
        *(_figure(one, name, 100, 1) for name in ("ece_15", "bias", "share_above_0.95")),
        f"{1000 * one.mean('time_median'):.1f}",
        f"{1000 * one.mean('time_p95'):.1f}",
        f"{one.mean('time_images_per_second'):.0f}",
        f"{one.mean('memory_peak'):.0f}",
        f"batch {min(collapsed):.0f}" if collapsed else "–",
    )


def _figure(result: Result, name: str, scale: float = 1, digits: int = 2) -> str:
    return spread(scale * result.mean(name), scale * result.std(name), digits)


def results_blocks(folders: Iterable[RunFolder]) -> list[Block]:
    """The same for a file."""
    results = group(folders)
    domains = list(dict.fromkeys(name for one in results for name in one.domains))
    rows = [(one.title, *(f"{one.accuracy(name):.2f}" for name in domains)) for one in results]
    return [
        Heading(_heading(results)),
        figures_sheet(results),
        Sheet("Accuracy by domain, %", ("method", *map(short, domains)), tuple(rows)),
    ]


def _heading(results: Sequence[Result]) -> str:
    """What they were run on."""
    run, manifest = results[0].run, results[0].manifests[0]
    count = len(results[0].seeds)
    said = [
        Path(run.data).name,
        Path(run.model.split(":")[-1]).name if run.model else "",
        str(manifest["stream"]),
        f"{manifest['images']} images",
        f"preset {run.preset}" if run.preset else "",
        f"{count} seed{'s' if count > 1 else ''}",
    ]
    return ", ".join(filter(None, said))
