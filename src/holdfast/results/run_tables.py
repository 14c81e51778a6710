"""The tables at the end of runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.text import Text

from holdfast.bench.names import distinct, short
from holdfast.bench.store import RunFolder
from holdfast.data.readers.layouts import CLEAN
from holdfast.results.acting import idle_notes
from holdfast.results.blocks import Block, Heading, Sheet
from holdfast.results.results import Result, group, spread


def results_blocks(folders: Iterable[RunFolder]) -> list[Block]:
    """Accuracy by domain, and a line of figures for each method."""
    results = group(folders)
    return [
        Heading(_heading(results)),
        domains_sheet(results),
        figures_sheet(results),
        *idle_notes({one.title: one.idle for one in results}),
    ]


def domains_sheet(results: Sequence[Result]) -> Sheet:
    """Methods × domains, as in the paper, the best in bold."""
    domains = list(dict.fromkeys(name for one in results for name in one.domains))
    acted = [not one.idle for one in results]
    scores = ([one.accuracy(name) for one in results] for name in domains)
    cells = zip(*(emphasised(each, acted) for each in scores), strict=True)
    rows = tuple((name, *row) for name, row in zip(_names(results), cells, strict=True))
    return Sheet("Accuracy by domain, %", ("method", *map(short, domains)), rows)


def emphasised(scores: Sequence[float], acted: Sequence[bool]) -> list[Text]:
    """Scores in %, the best one of the methods that acted in bold."""
    pairs = list(zip(scores, acted, strict=True))
    best = max((score for score, did in pairs if did and not math.isnan(score)), default=math.nan)
    return [
        Text("–" if math.isnan(score) else f"{score:.2f}", "bold" if did and score == best else "")
        for score, did in pairs
    ]


def figures_sheet(results: Sequence[Result]) -> Sheet:
    """Means over domains ± standard deviation over seeds, and the rest."""
    means = means_of(results)
    header = (
        "method",
        *means.values(),
        "ECE %",
        "bias %",
        "% > 0.95",
        "ms a batch",
        "p95",
        "images/s",
        "MB",
        "collapse",
    )
    rows = tuple(
        (name, *_figures(one, means)) for name, one in zip(_names(results), results, strict=True)
    )
    return Sheet("Figures", header, rows)


def _names(results: Sequence[Result]) -> list[str]:
    names = distinct([(one.title, one.manifests[0]["run"]["method"]) for one in results])
    return [one.marked(name) for one, name in zip(results, names, strict=True)]


def means_of(results: Iterable[Result]) -> dict[str, str]:
    """The means over domains, and what a table calls them; one where no clean images are among
    the domains."""
    domains = [{*one.domains} for one in results if one.folders]
    counts = {
        "mean_accuracy": sorted({len(one) for one in domains}),
        "mean_accuracy_corrupted": sorted({len(one - {CLEAN}) for one in domains}),
    }
    if counts["mean_accuracy"] == counts["mean_accuracy_corrupted"]:
        del counts["mean_accuracy_corrupted"]
    return {name: f"mean of {'/'.join(map(str, each))}" for name, each in counts.items()}


def _figures(one: Result, means: Iterable[str]) -> tuple[str, ...]:
    collapsed = one.values("collapse")
    return (
        *(figure(one, name) for name in means),
        *(figure(one, name, 100, 1) for name in ("ece_15", "bias", "share_above_0.95")),
        f"{1000 * one.mean('time_median'):.1f}",
        f"{1000 * one.mean('time_p95'):.1f}",
        f"{one.mean('time_images_per_second'):.0f}",
        f"{one.mean('memory_peak'):.0f}",
        f"batch {min(collapsed):.0f}" if collapsed else "–",
    )


def figure(result: Result, name: str, scale: float = 1, digits: int = 2) -> str:
    """A mean over seeds, and its spread."""
    return spread(scale * result.mean(name), scale * result.std(name), digits)


def _heading(results: Sequence[Result]) -> str:
    """What they were run on."""
    run, manifest = results[0].run, results[0].manifests[0]
    count = len(results[0].seeds)
    said = [
        Path(run.data.name).name,
        Path(run.model.name.split(":")[-1]).name if run.model.name else "",
        str(manifest["stream"]),
        f"{manifest['images']} images",
        f"window {run.effective_window}" if run.effective_window else "",
        f"preset {run.preset}" if run.preset else "",
        f"{count} seed{'s' if count > 1 else ''}",
    ]
    return ", ".join(filter(None, said))
