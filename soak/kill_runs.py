"""Starts a run again and again and kills it: python -m soak.kill_runs CACHE OUT METHOD KILLS SEED

A process of its own, which never uses polars: its threads do not survive a fork, and starting
Python anew for each kill would take long. Prints how far the run was at each kill.
"""

import json
import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # an optimiser imports it, which takes seconds

from holdfast.bench import materials as materials_module
from holdfast.bench import run as run_module
from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.bench.run import perform

STREAM = "continual(order='fog,contrast,original',clean=false)"


def few_images():
    """Runs are short, and so is what they wait for. A run's fingerprint holds these numbers: every
    process that goes on with a run says the same."""
    materials_module.DRAWN_IMAGES = 640
    materials_module.HEALTH_SOURCE, materials_module.DRIFTED_IMAGES = 128, 8


def plan(method):
    return Run.of(method, stream=STREAM, limit=64, batch=16)


def main(cache, out, method, kills, seed):
    torch.set_num_threads(1)
    few_images()
    run_module.ROWS_SECONDS = 0.01
    run = plan(method)
    fork, generator = multiprocessing.get_context("fork"), random.Random(int(seed))

    def opened():
        """Materials of which all is there, so that a run begins at once."""
        made = Materials(Path(cache))
        made.source(run)
        made.classes(run)
        made.hashes(run)
        return made

    def start(target):
        options = {"resume": True, "every": 0.05}
        child = fork.Process(target=perform, args=(run, materials, target), kwargs=options)
        child.start()
        return child

    materials = opened()
    start(Path(out) / "0").join()
    materials = opened()  # with what that run made of the source
    begun = time.monotonic()
    start(Path(out) / "1").join()
    whole = time.monotonic() - begun
    reached, finished = [], 2
    while len(reached) < int(kills):
        folder = Path(out) / str(finished)
        child = start(folder)
        child.join(generator.uniform(0.05, 0.7) * whole)
        if child.exitcode is None:
            os.kill(child.pid, signal.SIGKILL)
            notes = [json.loads(path.read_text()) for path in folder.glob("*/progress.json")]
            at = [finished, notes[0]["batches"] if notes else 0]
            if reached and at == reached[-1]:  # the machine has other work: give it more time
                whole *= 1.1
            reached.append(at)
            if len(reached) % 100 == 0:
                print(f"  {method}: {len(reached)} kills", file=sys.stderr, flush=True)
        child.join()
        assert child.exitcode in (0, -signal.SIGKILL), child.exitcode
        if child.exitcode == 0:
            finished += 1
            whole *= 0.95  # a run should be killed more than once before it is done
    print(json.dumps(reached))


if __name__ == "__main__":
    main(*sys.argv[1:])
