"""A rehearsal of the embedded network that is killed and goes on, beside one that is never stopped
and has the same plan: both end with the same answer."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from soak.verdict import Verdict

# Until the plan is there: what has to be drawn, and the first timing.
PATIENCE = 1_200.0
# What tells of the machine and not of the methods.
TIMES = ("cost",)


def rehearsing(minutes: float = 10.0, seed: int = 0, methods: tuple[str, ...] = ()) -> Verdict:
    """Kill a rehearsal once, finish it, and compare it with one that was not killed.

    minutes: of the rehearsal. seed: of the moment at which it is killed.
    methods: candidates; the rehearsal's own if there are none.
    """
    with tempfile.TemporaryDirectory() as folder:
        killed, whole = Path(folder) / "killed", Path(folder) / "whole"
        words = ["--minutes", str(minutes), *(word for name in methods for word in ("-m", name))]
        begun = time.monotonic()
        process = subprocess.Popen(command(killed, words), stdout=subprocess.DEVNULL)
        try:
            seconds = wait_for_plan(killed, process)
            planned = time.monotonic() - begun
            time.sleep(random.Random(seed).uniform(0.2, 0.8) * seconds)
        finally:
            process.kill()
            process.wait()
        before = len(list(killed.glob("evaluations/*.json")))
        ended_early = (killed / "rehearsal.json").exists()
        for name in ("plan.json", "source.safetensors"):
            whole.mkdir(exist_ok=True)
            shutil.copy(killed / name, whole / name)
        times = [finish(folder, words) for folder in (killed, whole)]
        ends = [ending(folder) for folder in (killed, whole)]
        after = len(list(killed.glob("evaluations/*.json")))
    failures = []
    if ended_early:
        failures.append("it had ended before it was killed: nothing is shown")
    if ends[0] != ends[1]:
        different = [name for name in ends[1] if ends[0].get(name) != ends[1][name]]
        failures.append(f"the one that was killed ended otherwise, in {', '.join(different)}")
    counts = {
        "seed": seed,
        "minutes": minutes,
        "seconds to plan": f"{planned:.0f}",
        "evaluations": f"{before} before the kill, {after} in all",
        "seconds to finish": f"{times[0]:.0f} after the kill, {times[1]:.0f} when never stopped",
        "answer": ends[0]["method"],
    }
    print(f"  {ends[0]['sentence']}", flush=True)
    return Verdict("rehearse", counts, tuple(failures))


def command(folder: Path, words: list[str]) -> list[str]:
    return [sys.executable, "-m", "holdfast", "rehearse", *words, "--out", str(folder), "--resume"]


def finish(folder: Path, words: list[str]) -> float:
    """Go on until it ends; the seconds that took."""
    begun = time.monotonic()
    subprocess.run(command(folder, words), check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def wait_for_plan(folder: Path, process: subprocess.Popen[bytes]) -> float:
    """Seconds that are planned for the rungs, once they are."""
    plan, until = folder / "plan.json", time.monotonic() + PATIENCE
    while not plan.exists():
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError("The rehearsal made no plan.")
        time.sleep(0.1)
    return float(json.loads(plan.read_text(encoding="utf-8"))["seconds"])


def ending(folder: Path) -> dict[str, Any]:
    """All that is told at the end, but for times."""
    result: dict[str, Any] = json.loads((folder / "rehearsal.json").read_text(encoding="utf-8"))
    for standing in result["standings"]:
        for name in TIMES:
            standing.pop(name)
    return result
