"""Was a rehearsal right? Rehearses on labelled source images, then runs every candidate on the test
corruptions and compares: what would the best have had, what has the rehearsed choice?

    python benchmarks/regret.py --out runs/regret --source labelled.npz --preset cifar100-c \\
        -- --data cifar100_test.npz --model resnet20:weights.safetensors --threads 1

What follows -- is given to both `holdfast rehearse` and `holdfast run`. What is done already is not
done again, so that it can be stopped and started anew, or only asked for its table.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import tyro

from holdfast.results.gather import gather

# What the paper says to take, where there is a preset of its benchmark.
PUBLISHED = "eata+debias"
CLEAN = "original"


@dataclass(frozen=True)
class Settings:
    """Regret of a rehearsed choice on the test corruptions."""

    out: Path
    options: tyro.conf.Positional[tuple[str, ...]] = ()
    """Of the rehearsal and of every run, behind --."""
    source: str | None = None
    """Labelled images to rehearse on; default: what belongs to the data."""
    known: str | None = None
    """Source images of the runs; default: those that are rehearsed on."""
    rehearsed: tuple[str, ...] = ()
    """Streams of the rehearsal; default: its own."""
    minutes: float = 10.0
    preset: str | None = None
    """Whose values the published method takes, beside the candidates."""
    stream: str = "continual"
    batch: int = 64
    limit: int = 500
    """Images of each test domain."""
    seeds: int = 1
    domains: str | None = None


def main(settings: Settings) -> int:
    folder = settings.out / "-".join(("rehearsal", *settings.rehearsed))
    source = [] if settings.source is None else ["--source", settings.source]
    budget = ["--minutes", str(settings.minutes), "--batch", str(settings.batch)]
    budget += [word for name in settings.rehearsed for word in ("--stream", name)]
    holdfast("rehearse", *settings.options, *source, *budget, "--out", str(folder), "--resume")
    plan = json.loads((folder / "plan.json").read_text())
    rehearsal = json.loads((folder / "rehearsal.json").read_text())
    known = settings.known or settings.source
    shared = [*settings.options, *(() if known is None else ("--source", known)), "--no-health"]
    shared += ["--stream", settings.stream, "--batch", str(settings.batch), "--resume"]
    shared += ["--limit", str(settings.limit), "--seeds", str(settings.seeds)]
    if settings.domains is not None:
        shared += ["--domains", settings.domains]
    named = [word for method in plan["methods"] for word in ("-m", method)]
    holdfast("run", *shared, *named, "--out", str(settings.out / "candidates"))
    everything = hindsight(settings.out / "candidates")
    accuracies = {name: everything[name] for name in plan["methods"]}
    if settings.preset is not None:
        out = settings.out / "published"
        preset = ["--preset", settings.preset, "--out", str(out)]
        holdfast("run", *shared, *preset, "-m", PUBLISHED)
        accuracies[f"{PUBLISHED} ({settings.preset})"] = hindsight(out)[PUBLISHED]
    print(table(accuracies, rehearsal))
    return 0


def holdfast(*words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "holdfast", *words], check=True, stdout=subprocess.DEVNULL
    )


def hindsight(folder: Path) -> dict[str, tuple[float, float]]:
    """Mean accuracy over corruptions, and over these and clean images, by method."""
    runs: dict[str, list[dict[str, float]]] = {}
    for run in gather(folder).runs:
        runs.setdefault(run.title, []).append(run.by_domain("accuracy"))
    return {
        title: (mean(accuracies, (CLEAN,)), mean(accuracies, ()))
        for title, accuracies in runs.items()
    }


def mean(runs: list[dict[str, float]], left_out: tuple[str, ...]) -> float:
    """Over seeds and domains."""
    return fmean(value for run in runs for name, value in run.items() if name not in left_out)


def table(accuracies: dict[str, tuple[float, float]], rehearsal: dict[str, Any]) -> str:
    rehearsed = {standing["method"]: standing["accuracy"] for standing in rehearsal["standings"]}
    lines = [rehearsal["sentence"], "", "| method | rehearsed | corruptions | and clean |"]
    lines.append("|---" * 4 + "|")
    for name in sorted(accuracies, key=lambda name: -accuracies[name][0]):
        estimate = f"{rehearsed[name]:.1f}" if name in rehearsed else "–"
        mark = " (chosen)" if name == rehearsal["method"] else ""
        corrupted, all_images = accuracies[name]
        lines.append(f"| {name}{mark} | {estimate} | {corrupted:.2f} | {all_images:.2f} |")
    for part, images in enumerate(("corruptions", "corruptions and clean images")):
        values = {name: value[part] for name, value in accuracies.items()}
        chosen, best = values[rehearsal["method"]], max(values, key=lambda name: values[name])
        against = [name for name in values if name in ("frozen", "bn") or " " in name]
        gains = ", ".join(f"{chosen - values[name]:+.2f} against {name}" for name in against)
        lines.append(f"On {images}: {values[best] - chosen:.2f} below the best, {best}; {gains}.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Settings)))
