"""Whether a method did what it is for: nothing is an improvement over one that hardly acted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from holdfast.bench.manifest import Manifest, Metrics
from holdfast.bench.metrics.seen import Seen
from holdfast.engine.last import Activity

# In tables, beside the name of a method.
IDLE = "hardly acted"
IDLE_NOTE = (
    f"Hardly acted: took fewer than {100 * Activity.HARDLY:.0f} % of {Activity.OVER} or more steps "
    "that it could have taken. Nothing counts as an improvement over it."
)


def hardly_acts(metrics: Mapping[str, float | None]) -> bool:
    """Whether the method took next to none of the steps it could have taken; see `with_steps`."""
    due, rate = metrics.get("steps_due"), metrics.get("step_rate")
    return due is not None and due >= Activity.OVER and rate is not None and rate < Activity.HARDLY


def steps_taken(runs: Iterable[Mapping[str, float | None]]) -> str:
    """`1 step of 128`, over the metrics of some runs."""
    known = list(runs)
    taken, due = (
        sum(round(one.get(name) or 0) for one in known) for name in ("steps", "steps_due")
    )
    return f"{taken:,} step{'' if taken == 1 else 's'} of {due:,}"


def with_steps(manifest: Manifest) -> Metrics:
    """A run's metrics with `steps`, `steps_due` and `step_rate`, also of a run from before these
    were written down: there, a method that learns could take a step in every batch that was
    neither missed nor refused."""
    metrics = manifest.metrics
    if metrics.get("steps_due") is not None or metrics.get("batches") is None:
        return metrics
    if not learns(manifest):
        return {**metrics, "step_rate": None}
    came = (metrics["batches"] or 0) - (metrics.get("missed") or 0)
    taken = round((metrics.get("step_rate") or 0) * came)
    due = came - (metrics.get("refused") or 0)
    return {**metrics, "steps": taken, "steps_due": due, "step_rate": taken / due if due else None}


def with_due(seen: Seen, learner: bool) -> Seen:
    """The same for a row: `learner`, whether the run's method learns."""
    if seen.due is not None:
        return seen
    return replace(seen, due=learner and not seen.missed and seen.refused is None)


def learns(manifest: Manifest) -> bool:
    """Whether the run's method takes gradient steps: then its settings have a learning rate."""
    return any("lr" in settings for settings in manifest.settings.values())
