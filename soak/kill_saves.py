"""Kills a process while it saves an adapter: python -m soak.kill_saves OUT KILLS SEED

The child is forked from this warm process and saves two states in turn over one file. After each
kill the file must be one of the two, whole. Prints what was found at each kill.
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

import holdfast
from holdfast.data import glyphs
from holdfast.util.files import tensor_hash

METHOD = "rotta(capacity=32,every=16)"


def main(out, kills, seed):
    torch.set_num_threads(1)
    fork, generator = multiprocessing.get_context("fork"), random.Random(int(seed))
    model, folder = glyphs.model(), Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "state"
    images = glyphs.images("test", torch.arange(64))
    adapters = [holdfast.adapt(model, METHOD) for _ in range(2)]
    for index, adapter in enumerate(adapters):
        adapter(images[32 * index :][:32])
    known = [digest(adapter) for adapter in adapters]
    begun = time.monotonic()
    for adapter in adapters:
        adapter.save(path)
    save_seconds = (time.monotonic() - begun) / 2
    states = []
    while len(states) < int(kills):
        child = fork.Process(target=save_for_ever, args=(adapters, path))
        child.start()
        time.sleep(0.01 + generator.uniform(0, 4) * save_seconds)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL, child.exitcode
        parts = list(folder.glob(".*.part"))  # what a kill in the middle of a save leaves behind
        for part in parts:
            part.unlink()
        try:
            state = known.index(digest(holdfast.load(path, model)))
        except ValueError as error:
            state = str(error)
        states.append([state, len(parts)])
    print(json.dumps(states))


def save_for_ever(adapters, path):
    while True:
        for adapter in adapters:
            adapter.save(path)


def digest(adapter):
    return tensor_hash(adapter._state.saved())


if __name__ == "__main__":
    main(*sys.argv[1:])
