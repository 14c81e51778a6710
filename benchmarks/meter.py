"""Time and memory of a call, and memory of an object."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any

import torch


def milliseconds(run: Callable[[], Any], device: torch.device) -> float:
    wait(device)
    start = time.perf_counter()
    run()
    wait(device)
    return 1e3 * (time.perf_counter() - start)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_memory(run: Callable[[], Any], device: torch.device) -> float:
    """The most that torch's allocator holds at once during a step beyond what it held before it,
    in MB. On the CPU this leaves out what oneDNN takes for itself."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return (torch.cuda.max_memory_allocated(device) - before) / 1e6
    activities = [torch.profiler.ProfilerActivity.CPU]
    with (
        without_stderr(),
        torch.profiler.profile(activities=activities, profile_memory=True) as profile,
    ):
        run()
    # The public list of events leaves out memory that is taken inside an operator.
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most / 1e6


# Through these an object leads to the rest of the program.
ELSEWHERE = (type, ModuleType, FunctionType, FrameType, GeneratorType)


def held_memory(root: object, without: object = None) -> float:
    """All tensors that a thing leads to, but those that are only reached by `without`, in MB.
    Tensors that share memory count once."""
    sizes: dict[int, int] = {}
    seen, queue = {id(without)}, [root]
    while queue:
        item = queue.pop()
        if id(item) in seen or isinstance(item, ELSEWHERE):
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            storage = item.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        queue += gc.get_referents(item)
    return sum(sizes.values()) / 1e6


@contextmanager
def without_stderr() -> Iterator[None]:
    """Kineto writes two lines at every start, past Python's own stderr."""
    stderr = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
