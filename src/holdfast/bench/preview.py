"""What is about to be run: how long each stream is, and what to know of it and of the methods."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.data.streams import Flow
from holdfast.explain.fit import advise


def announce(lines: Iterable[str]) -> None:
    """Where progress is told too, so that results can go into a file by themselves."""
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def preview(runs: Sequence[Run], materials: Materials) -> list[str]:
    """Lines to read before the runs begin. What is wrong with a run, the run itself says."""
    return [*preview_streams(runs, materials), *preview_methods(runs, materials)]


def preview_streams(
    runs: Sequence[Run], materials: Materials, *, errors: bool = False
) -> list[str]:
    """How many images and batches each stream has, for how many runs, and its notices; `errors`:
    also why a stream or a model cannot be opened, where no run is to say it."""
    flows: dict[tuple[object, ...], Flow] = {}
    lines: dict[str, int] = {}
    notices: dict[str, None] = {}
    failed: dict[str, str] = {}
    for run in runs:
        try:
            key = (id(materials.data(run)), str(run.resolved_stream), run.stream.intruders)
            flow = flows[key] = flows.get(key) or materials.flow(run)
        except Exception as error:
            failed.setdefault(_why(error), f"{run.data.name}, {run.resolved_stream}")
            continue
        window = f", window {run.effective_window}" if run.effective_window else ""
        line = f"{Path(run.data.name).name}, {run.resolved_stream}: {flow.size}{window}"
        lines[line] = lines.get(line, 0) + 1
        notices |= dict.fromkeys(flow.notices)
    sizes = [f"{line}; {count} run{'s' * (count > 1)}" for line, count in lines.items()]
    if errors:
        for run in runs:
            try:
                materials.model(run)
            except Exception as error:
                failed.setdefault(_why(error), f"the model {run.model.name or ''}".strip())
        notices |= {f"{what} cannot be opened: {why}": None for why, what in failed.items()}
    return sizes + [f"note: {text}" for text in notices]


def _why(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def preview_methods(runs: Iterable[Run], materials: Materials) -> list[str]:
    """What `holdfast doctor` says of settings and of the batch size, and of which methods."""
    titles: dict[str, dict[str, None]] = {}
    for run in runs:
        try:
            model, classes = materials.model(run), materials.classes(run)
        except Exception:
            continue
        batch = max(run.resolved_stream.batch, run.effective_window or 1)
        for text in advise(run.composition, model, batch, classes):
            titles.setdefault(text, {})[run.title] = None
    return [f"note: {', '.join(names)}: {text}." for text, names in titles.items()]
