"""Kills at random moments: of runs, which are then resumed, and of processes that save."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import polars as pl

from holdfast.bench.materials import Materials
from holdfast.bench.run import perform
from holdfast.util.progress import progress
from soak import kill_runs, kill_saves
from soak.verdict import Verdict


def kills(
    runs: int = 1_000,
    saves: int = 1_000,
    seed: int = 0,
    methods: tuple[str, ...] = ("eata+debias", "rotta"),
) -> Verdict:
    """SIGKILL at random moments. A run that was resumed until it finished has the rows of one that
    was never stopped; a state file is the old or the new one, and loads.

    runs: kills of runs, shared out among the methods. saves: kills of processes that save.
    """
    failures: list[str] = []
    met, finished, on_the_way = 0, 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for index, method in enumerate(methods):
            count = runs // len(methods) + (index < runs % len(methods))
            reached, findings = kill_run(method, count, seed, folder / str(index))
            met += len(reached)
            on_the_way += sum(1 for _, batches in reached if batches)
            finished += findings.pop("runs")
            failures += [f"{method}: {finding}" for finding in findings.values()]
        saved = kill_save(saves, seed, folder / "saves") if saves else []
    failures += [f"save: {state}" for state, _ in saved if not isinstance(state, int)]
    counts = {
        "seed": seed,
        "methods": " ".join(methods),
        "kills of runs": f"{met:,}",
        "of these after a snapshot": f"{on_the_way:,}",
        "runs compared": finished,
        "kills of saves": f"{len(saved):,}",
        "of these in the middle of one": f"{sum(parts > 0 for _, parts in saved):,}",
        "states found": f"{sum(s == 0 for s, _ in saved):,} and {sum(s == 1 for s, _ in saved):,}",
    }
    return Verdict("kills", counts, tuple(dict.fromkeys(failures)))


def kill_run(
    method: str, count: int, seed: int, folder: Path
) -> tuple[list[list[int]], dict[str, object]]:
    """Where each kill met a run, as (run, batches in its snapshot); how many runs were compared
    with one never stopped, and what differs."""
    kill_runs.few_images()
    run, materials = kill_runs.plan(method), Materials(folder / "cache")
    whole = lasting(perform(run, materials, folder / "whole").rows)
    pieces = folder / "pieces"
    reached = _child(kill_runs.__name__, materials.folder, pieces, method, count, seed)
    findings: dict[str, object] = {}
    folders = sorted(pieces.iterdir())
    with progress(f"Comparing {method}", len(folders)) as advance:
        for piece in folders:
            done = perform(run, materials, piece, resume=True)
            if (names := sorted(each.name for each in piece.iterdir())) != [done.path.name]:
                findings[f"{piece.name} anew"] = (
                    f"run {piece.name} was not gone on with, but begun anew: {', '.join(names)}"
                )
            if not lasting(done.rows).equals(whole):
                findings[piece.name] = f"run {piece.name} has other rows than one never stopped"
            if (files := sorted(p.name for p in done.path.iterdir())) != FILES:
                findings[f"{piece.name} files"] = f"run {piece.name} left {', '.join(files)}"
            advance(1)
    if len(reached) != count:
        findings["count"] = f"{len(reached)} kills instead of {count}"
    return reached, {**findings, "runs": len(folders)}


FILES = ["manifest.json", "rows.parquet"]


def kill_save(count: int, seed: int, folder: Path) -> list[list[int | str]]:
    """Of each kill: which of two states the file holds, or what is wrong with it; and how many
    half-written files there were."""
    states: list[list[int | str]] = _child(kill_saves.__name__, folder, count, seed)
    return states


def lasting(rows: pl.DataFrame) -> pl.DataFrame:
    """What does not differ from run to run."""
    return rows.select(name for name in rows.columns if "time" not in name and "memory" not in name)


def _child(module: str, *arguments: object) -> list[list[int]]:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows: list[list[int]] = json.loads(done.stdout)
    return rows
