"""Runs on a Ray cluster: each is a task, and goes on from its snapshot where its worker dies.

All machines of the cluster share the folder of the runs, that of the data, and the one in which
the sweep is started.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from holdfast.bench.many import LOOK_SECONDS, Ended, Tell, attempt, sparing
from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.bench.run import SNAPSHOT_SECONDS, Progress, ignore
from holdfast.util.cpu import tune_cpu
from holdfast.util.imports import require

# How often a run's worker may die before the run counts as failed.
RETRIES = 3

# Seconds for runs that were asked to stop to reach the end of their batch.
PATIENCE = 60.0

# On a busy machine, it gives up on parts of its own after 15 seconds (ray-project/ray#65983).
STARTS = 2

# No usage statistics are sent, and no warning about GPUs is printed.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}

# A cluster of this machine alone; only short messages go through its store.
LOCAL = {"include_dashboard": False, "object_store_memory": 100_000_000}


def perform_on_ray(
    runs: Sequence[Run],
    out: Path,
    *,
    address: str = "local",
    again: bool = False,
    every: float = SNAPSHOT_SECONDS,
    tell: Tell = ignore,
    cores: int | None = None,
) -> list[Ended]:
    """Do the runs on a cluster: `auto` is one that this machine is part of, ray://HOST:PORT one
    elsewhere, `local` one of this machine alone, with that many cores, for as long as it takes."""
    outcomes: dict[int, Ended] = {}
    options = {"resume": True, "again": again, "every": every}
    with cluster(address, cores) as ray:
        _check_room(ray, runs)
        queues = import_module("ray.util.queue")
        news = queues.Queue(actor_options={"num_cpus": 0})
        going = {}
        for number, run in enumerate(runs):
            gpus = 1 if run.machine.device.startswith("cuda") else 0
            task = ray.remote(num_cpus=run.machine.threads, num_gpus=gpus, max_retries=RETRIES)(
                _work
            )
            going[task.remote(number, run, out.resolve(), options, Path.cwd(), news)] = number
        try:
            while going:
                done, _ = ray.wait(list(going), num_returns=1, timeout=LOOK_SECONDS)
                with suppress(queues.Empty):
                    while True:
                        tell(*news.get_nowait())
                for reference in done:
                    number = going.pop(reference)
                    try:
                        outcomes[number] = ray.get(reference)
                    except Exception as error:  # Ray's own, for a worker that died again and again
                        outcomes[number] = Ended(runs[number], error=" ".join(str(error).split()))
                    tell(number, outcomes[number])
        except KeyboardInterrupt:
            for reference in going:
                ray.cancel(reference)
            ray.wait(list(going), num_returns=len(going), timeout=PATIENCE)
            raise
    return [outcomes[number] for number in range(len(runs))]


@contextmanager
def cluster(address: str, cores: int | None, *, logs: bool = False) -> Iterator[Any]:
    """Ray, connected. logs: what its workers print comes to this terminal."""
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    require("ray", "--engine ray")
    ray = import_module("ray")
    local = {**LOCAL, "num_cpus": cores} if address == "local" else {}
    for retries in reversed(range(STARTS if local else 1)):
        try:
            ray.init(address, log_to_driver=logs, logging_level=logging.ERROR, **local)
            break
        except Exception as error:  # some of its errors are of no other type
            ray.shutdown()
            if not retries:
                raise ValueError(f"No Ray cluster answers at {address!r}: {error}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_room(ray: Any, runs: Sequence[Run]) -> None:
    """A task that fits no machine would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cores = max(node.get("CPU", 0) for node in nodes)
    most = max(run.machine.threads for run in runs)
    if most > cores:
        raise ValueError(
            f"A run takes {most} threads, and no machine of the cluster has more than {cores:.0f} "
            "cores: lower --threads."
        )
    if any(run.machine.device.startswith("cuda") for run in runs) and not any(
        node.get("GPU") for node in nodes
    ):
        raise ValueError(
            "A run is for cuda, and no machine of the cluster has a GPU: pass --device cpu."
        )


def _work(
    number: int, run: Run, out: Path, options: Mapping[str, Any], folder: Path, news: Any
) -> Ended:
    """What a worker does: one run."""
    tune_cpu()
    try:
        os.chdir(folder)
    except OSError as error:
        return Ended(run, error=f"On {platform.node()}, where all folders have to be: {error}")

    def tell(progress: Progress) -> None:
        with suppress(Exception):  # a run does not depend on who hears of it
            news.put_nowait((number, progress))

    return attempt(run, _materials(out), out, sparing(tell), **options)


@cache
def _materials(out: Path) -> Materials:
    """A worker does one run after the other."""
    return Materials(out / "cache")
