"""The tables at the end of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holdfast.bench.names import short
from holdfast.bench.results import Result, group, spread
from holdfast.bench.store import RunFolder
from holdfast.terminal import columns


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
        domains_table(results),
        Text(""),
        figures_table(results),
    )


def domains_table(results: Sequence[Result]) -> Table:
    """Domains downwards, since methods are fewer; the best of each in bold."""
    domains = list(dict.fromkeys(name for one in results for name in one.domains))
    table = columns("domain", *(one.title for one in results))
    for column in table.columns[1:]:
        column.justify = "right"
    for domain in domains:
        scores = [one.accuracy(domain) for one in results]
        table.add_row(short(domain), *emphasised(scores))
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
