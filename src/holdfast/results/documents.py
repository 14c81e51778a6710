"""What is read at the end of runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from holdfast.bench.store import RunFolder
from holdfast.results.comparison import Comparison, compare
from holdfast.results.stored import StoredRun
from holdfast.results.table import Block, Heading
from holdfast.results.tables import accuracy_table, idle_note, metrics_table


def run_document(folders: Iterable[RunFolder]) -> list[Block]:
    """Accuracy by domain, and a line of metrics for each method."""
    blocks: list[Block] = []
    for comparison in compare(map(StoredRun.of, folders)):
        blocks += [
            Heading(_heading(comparison)),
            accuracy_table(comparison),
            metrics_table(comparison.groups, brief=True),
            *filter(None, [idle_note(comparison.groups)]),
        ]
    return blocks


def _heading(comparison: Comparison) -> str:
    """What they were run on."""
    first, seeds = comparison.groups[0].first, len(comparison.groups[0].runs)
    run = first.run
    facts = [
        Path(run.data.name).name,
        Path(run.model.name.split(":")[-1]).name if run.model.name else "",
        first.stream,
        f"{first.manifest.images} images",
        f"window {run.effective_window}" if run.effective_window else "",
        f"preset {run.preset}" if run.preset else "",
        f"{seeds} seed{'s' * (seeds > 1)}",
    ]
    return ", ".join(filter(None, facts))
