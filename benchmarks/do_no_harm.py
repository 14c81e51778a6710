"""Does adapting cost anything where nothing drifts? Methods on every stream of
docs/results/do-no-harm.md, by `holdfast run`; ends with its table.

    python benchmarks/do_no_harm.py --out runs/harm --seeds 2 -- --data glyphs-c --threads 1

What follows -- is given to every run. Finished runs are not run again, so that it can be stopped
and started anew, or only asked for its table.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import tyro

from holdfast.results.gather import gather
from holdfast.results.stored import StoredRun

CLEAN = "original"
# By name: options of `holdfast run`, and whether a row shows clean images, corrupted ones or all.
STREAMS = {
    "clean": ("--domains original --limit 1536", "clean"),
    "severity 1": ("--severity 1 --stream continual(clean=false) --limit 128", "all"),
    "severity 5": ("--stream continual(clean=false) --limit 192", "all"),
    "switching": ("--stream switching --limit 128", "both"),
    "sorted labels, clean": (
        "--stream correlated(sampler=sort) --domains original --limit 1536",
        "clean",
    ),
    "sorted labels, severity 5": (
        "--stream correlated(sampler=sort,clean=false) --limit 192",
        "all",
    ),
    "batches of 16, clean": ("--batch 16 --domains original --limit 768", "clean"),
    "batches of 16, severity 5": (
        "--batch 16 --stream continual(clean=false) --limit 160",
        "all",
    ),
    "batches of 4, clean": ("--batch 4 --domains original --limit 512", "clean"),
    "batches of 4, severity 5": ("--batch 4 --stream continual(clean=false) --limit 64", "all"),
    "mixed, severity 5 and clean": ("--stream mixed(clean=true) --limit 128", "all"),
    "half intruders, clean": ("--stream noisy --domains original --limit 768", "clean"),
    "half intruders, severity 5": ("--stream noisy(clean=false) --limit 96", "all"),
}
METHODS = (
    *("frozen", "bn", "bn+steady", "tent", "tent+steady", "eata", "eata+steady"),
    *("eata+debias", "eata+debias+steady", "roid", "roid+steady"),
)
GUARDED = ("eata+debias+steady",)
FALLBACK = ", guard"


@dataclass(frozen=True)
class Settings:
    """Methods on streams with and without drift."""

    out: Path
    options: tyro.conf.Positional[tuple[str, ...]] = ()
    """Of every run, behind --."""
    method: tuple[str, ...] = METHODS
    guarded: tuple[str, ...] = GUARDED
    """Those that also run with --guard fallback."""
    stream: tuple[str, ...] = tuple(STREAMS)
    limit: int | None = None
    """Images of each domain, in place of each stream's own."""
    seeds: int = 1


def main(settings: Settings) -> int:
    rows: dict[str, dict[str, float]] = {}
    for name in settings.stream:
        given, shows = STREAMS[name]
        folder = settings.out / re.sub(r"\W+", "-", name)
        options = given.split()
        if settings.limit is not None:
            options[options.index("--limit") + 1] = str(settings.limit)
        shared = [*settings.options, *options, "--seeds", str(settings.seeds)]
        run(settings.method, folder / "plain", [*shared, "--no-health"])
        run(settings.guarded, folder / "guarded", [*shared, "--guard", "fallback"])
        by_title = by_method(folder / "plain")
        for title, runs in by_method(folder / "guarded").items():
            by_title[title + FALLBACK] = runs
        for part in ("clean", "corrupted") if shows == "both" else ("",):
            label = f"{name}, {part} part" if part else name
            rows[label] = {title: mean(runs, part) for title, runs in by_title.items()}
    rows["mean"] = {
        title: fmean(row[title] for row in rows.values()) for title in next(iter(rows.values()))
    }
    print(table(rows))
    print(shortfalls(rows))
    return 0


def run(methods: Sequence[str], out: Path, options: Sequence[str]) -> None:
    if methods:
        named = [word for method in methods for word in ("-m", method)]
        command = [sys.executable, "-m", "holdfast", "run", *named, *options, "--resume"]
        subprocess.run([*command, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)


def by_method(folder: Path) -> dict[str, list[StoredRun]]:
    runs: dict[str, list[StoredRun]] = {}
    for stored in gather(folder).runs if folder.is_dir() else ():
        runs.setdefault(stored.title, []).append(stored)
    return runs


def mean(runs: Sequence[StoredRun], part: str) -> float:
    """Accuracy over seeds and domains: of clean images, of corrupted ones, or of all."""
    wanted = {"clean": (True,), "corrupted": (False,), "": (True, False)}[part]
    return fmean(
        value
        for stored in runs
        for domain, value in stored.by_domain("accuracy").items()
        if (domain == CLEAN) in wanted
    )


def table(rows: dict[str, dict[str, float]]) -> str:
    titles = list(next(iter(rows.values())))
    lines = [f"| stream | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    for name, row in rows.items():
        lines.append(f"| {name} | {' | '.join(f'{row[title]:.1f}' for title in titles)} |")
    return "\n".join(lines)


def shortfalls(rows: dict[str, dict[str, float]]) -> str:
    """Where a method with steady is below the better of frozen and its host."""
    lines = []
    for name, row in rows.items():
        for title, value in row.items():
            host = title.removesuffix(FALLBACK).removesuffix("+steady")
            if host in row and "+steady" in title:
                below = max(row["frozen"], row[host]) - value
                if below > (0.5 if name.endswith(("clean", "clean part")) else 2):
                    lines.append(f"{name}: {title} is {below:.1f} below")
    return "\n".join(lines) or "Nowhere beyond 0.5 points on clean images, or 2 anywhere."


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Settings)))
