"""Whether a method did what it is for: nothing is an improvement over one that hardly acted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.bench.metrics.recorder import Figures
from holdfast.bench.metrics.seen import Seen
from holdfast.engine.activity import Activity

# In tables, beside the name of a method that hardly acted.
MARK = "‡"
IDLE = "hardly acted"
MEANING = (
    f"took fewer than {100 * Activity.HARDLY:.0f} % of {Activity.OVER} or more steps that it could "
    "have taken. Nothing counts as an improvement over it"
)


def hardly_acts(figures: Mapping[str, float | None]) -> bool:
    """Whether the method took next to none of the steps it could have taken; see `with_steps`."""
    due, rate = figures.get("steps_due"), figures.get("step_rate")
    return due is not None and due >= Activity.OVER and rate is not None and rate < Activity.HARDLY


def steps_taken(runs: Iterable[Mapping[str, float | None]]) -> str:
    """`1 step of 128`, over the figures of some runs."""
    known = list(runs)
    taken, due = (
        sum(round(one.get(name) or 0) for one in known) for name in ("steps", "steps_due")
    )
    return f"{taken:,} step{'' if taken == 1 else 's'} of {due:,}"


def with_steps(figures: Figures, manifest: Mapping[str, Any]) -> Figures:
    """A run's figures with `steps`, `steps_due` and `step_rate`, also of a run from before these
    were written down: there, a method that learns could take a step in every batch that was
    neither missed nor refused."""
    if figures.get("steps_due") is not None or figures.get("batches") is None:
        return figures
    if not learns(manifest):
        return {**figures, "step_rate": None}
    came = (figures["batches"] or 0) - (figures.get("missed") or 0)
    taken = round((figures.get("step_rate") or 0) * came)
    due = came - (figures.get("refused") or 0)
    return {**figures, "steps": taken, "steps_due": due, "step_rate": taken / due if due else None}


def with_due(seen: Seen, learner: bool) -> Seen:
    """The same for a row: `learner`, whether the run's method learns."""
    if seen.due is not None:
        return seen
    return replace(seen, due=learner and not seen.missed and seen.refused is None)


def learns(manifest: Mapping[str, Any]) -> bool:
    """Whether the run's method takes gradient steps: then its settings have a learning rate."""
    settings = manifest.get("settings")
    parts = settings.values() if isinstance(settings, Mapping) else ()
    return any(isinstance(part, Mapping) and "lr" in part for part in parts)


def idle_notes(idle: Mapping[str, str]) -> list[str]:
    """What the mark of methods that hardly acted means; `idle`: by name, the steps that were
    taken."""
    steps = [f"{name}: {taken}" for name, taken in idle.items() if taken]
    return [f"{MARK} {IDLE} ({'; '.join(steps)}): {MEANING}."] if steps else []
