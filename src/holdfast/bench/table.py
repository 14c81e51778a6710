"""The tables at the end of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group
from rich.table import Table
from rich.text import Text

from holdfast.bench.names import short
from holdfast.bench.results import Result, group, spread
from holdfast.bench.store import RunFolder
from holdfast.terminal import UNBOUNDED, columns


def results_table(folders: Iterable[RunFolder]) -> Group:
    """Accuracy by domain, and a line of figures for each method."""
    results = group(folders)
    first = results[0]
    images = first.manifests[0]["images"]
    heading = (
        f"{first.run.data}, {first.manifests[0]['stream']}, {images} images, "
        f"{len(first.seeds)} seed{'s' if len(first.seeds) > 1 else ''}: accuracy in %"
    )
    return Group(
        Text(heading, style="bold"),
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
    counts = sorted({len(one.domains) for one in results})
    whole = "/".join(map(str, counts))
    fewer = "/".join(str(count - 1) for count in counts)
    table = columns(
        "method",
        f"mean of {whole}",
        f"mean of {fewer}",
        "ECE %",
        "bias %",
        "> 0.95 %",
        "ms a batch",
        "p95",
        "images/s",
        "MB",
        "collapse",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for one in results:
        collapsed = one.values("collapse")
        table.add_row(
            Text(one.title),
            _figure(one, "mean_accuracy"),
            _figure(one, "mean_accuracy_corrupted"),
            _figure(one, "ece_15", 100, 1),
            _figure(one, "bias", 100, 1),
            _figure(one, "share_above_0.95", 100, 1),
            f"{1000 * one.mean('time_median'):.1f}",
            f"{1000 * one.mean('time_p95'):.1f}",
            f"{one.mean('time_images_per_second'):.0f}",
            f"{one.mean('memory_peak'):.0f}",
            Text(f"batch {min(collapsed):.0f}", "red") if collapsed else Text("–"),
        )
    return table


def _figure(result: Result, name: str, scale: float = 1, digits: int = 2) -> str:
    return spread(scale * result.mean(name), scale * result.std(name), digits)
