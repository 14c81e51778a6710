"""What an adaptation step costs over the bare network: one forward by batch statistics, and one
backward of the summed logits to the scale and shift of the norm layers.

All contestants of a network have a turn in every round, in a new order each time. A ratio is that
of the fastest rounds; behind it stand the 10th, 50th and 90th percentile of the ratios within each
round.

    python benchmarks/step.py --net resnet20 --variant channels_last --method tent sar --rounds 20
"""

from __future__ import annotations

import json
import platform
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from contestants import Measured, Variant, enter, names, neighbours
from parts import measure_prototypes, measure_views
from race import race, tell
from rich.console import Console
from step_tables import (
    Target,
    judge,
    show_default,
    show_prototypes,
    show_steps,
    show_targets,
    show_views,
)
from subject import make_subject

# A round of CoTTA's views is 64 forwards, so there is one for so many rounds of steps.
ROUNDS_PER_VIEWS = 5

NAMES = (*names(), "cotta-views")
Name = tyro.extras.literal_type_from_choices(NAMES)
Net = Literal["resnet20", "resnext29"]


@dataclass(frozen=True)
class Settings:
    """Cost of an adaptation step over the bare network."""

    rounds: int = 20
    net: tuple[Net, ...] = ("resnet20", "resnext29")
    variant: tuple[Variant, ...] = ("contiguous", "channels_last", "compiled")
    method: tuple[Name, ...] = NAMES
    """Tent, eata, debias and eata+debias run in all variants, others only in channels_last."""
    batch: int = 64
    threads: int | None = None
    """CPU threads; torch's own choice if not given."""
    device: str = "cpu"
    json: Path | None = None
    """Write all numbers here, each round's time included."""


def main(settings: Settings) -> None:
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    device = torch.device(settings.device)
    out = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    out.print(
        f"torch {torch.__version__} on {settings.device}, {torch.get_num_threads()} threads, "
        f"{platform.machine()}; batches of {settings.batch} images 32×32, {settings.rounds} rounds"
    )
    results: dict[str, Measured] = {}
    for name in settings.net:
        results[name] = measure(name, settings, device)
        show_steps(out, name, results[name].contestants)
        show_default(out, name, results[name])
        torch.compiler.reset()  # the next network compiles afresh
    show_views(out, results)
    updates = measure_prototypes(settings.batch, device)
    show_prototypes(out, updates, results)
    targets = judge(results)
    show_targets(out, targets)
    if settings.rounds < 20:
        out.print("Fewer than 20 rounds: a trial of the benchmark, not a measurement.")
    if settings.json is not None:
        settings.json.write_text(json.dumps(as_data(settings, results, updates, targets)))


def measure(name: str, settings: Settings, device: torch.device) -> Measured:
    subject = make_subject(name, settings.batch, device)
    contestants = enter(subject, settings.method, settings.variant)
    for variant, row in contestants.items():
        for method, contestant in row.items():
            tell(f"{name}: warming up {method}, {variant}")
            contestant.warm_up(device)
    race(name, neighbours(contestants), settings.rounds, device)
    views = None
    if "cotta-views" in settings.method:
        views = measure_views(subject, max(1, settings.rounds // ROUNDS_PER_VIEWS))
    return Measured(contestants, views, subject.initial_gap)


def as_data(
    settings: Settings,
    results: dict[str, Measured],
    updates: dict[int, float],
    targets: list[Target],
) -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "device": settings.device,
        "threads": torch.get_num_threads(),
        "machine": platform.platform(),
        "batch": settings.batch,
        "rounds": settings.rounds,
        "steps": [
            {
                "net": name,
                "variant": variant,
                "method": method,
                "milliseconds": contestant.milliseconds,
                "over_bare": vars(contestant.over(row["bare"])),
                "forwards": contestant.forwards,
                "backwards": contestant.backwards,
                "stepped": contestant.stepped,
                "peak_mb": contestant.peak_mb,
                "held_mb": contestant.held_mb,
            }
            for name, measured in results.items()
            for variant, row in measured.contestants.items()
            for method, contestant in row.items()
        ],
        "default_over_contiguous": [
            {"net": name, "method": method, **vars(ratio), "logits_apart": gap}
            for name, measured in results.items()
            for method, (ratio, gap) in measured.gains().items()
        ],
        "initial_logits_apart": {name: measured.initial_gap for name, measured in results.items()},
        "views": {
            name: {"plain": plain.milliseconds, "augmented": augmented.milliseconds}
            for name, measured in results.items()
            if measured.views
            for plain, augmented in [measured.views]
        },
        "prototype_update_ms": updates,
        "targets": [{**vars(target), "verdict": target.verdict} for target in targets],
    }


if __name__ == "__main__":
    # The same images come back in every round: that predictions repeat is no collapse.
    warnings.filterwarnings("ignore", message=".*has collapsed")
    main(tyro.cli(Settings))
