"""What holdfast's CPU settings are worth: `holdfast.tune_cpu()` and the default memory format.

    python benchmarks/cpu.py            # some minutes, on a machine that does nothing else
    python benchmarks/cpu.py --quick    # whether it runs: no basis for a judgement

Each row compares two ways to run a step of tent: as released code runs it (a plain loop over
contiguous tensors, nothing set), and as holdfast does by default. Settings belong to a process, so
each way has a process of its own; they take turns, step by step, and begin a round in turns.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import tyro

from holdfast.util.cpu import MEMORY, SLEEP, WAIT

# released: see above. waiting: the same with the wait policy alone. ours: holdfast's default.
Way = Literal["released", "waiting", "ours"]


@dataclass(frozen=True)
class Case:
    """A net, its images, which way is compared with that of released code, and what is wanted of
    its gain: in processor time and in wall time, or in wall time alone."""

    name: str
    net: str
    size: int
    batch: int
    threads: int
    wanted: float
    way: Way = "ours"
    busy: int = 0
    """Processes beside it that adapt as released code does, with as many threads."""

    @property
    def wall_alone(self) -> bool:
        return self.threads > 1


CASES = (
    Case("ResNeXt-29", "resnext29", 32, 64, 1, 2),
    Case("ResNet-50 at 160²", "resnet50", 160, 64, 1, 1.3),
    Case("ResNet-20, 2 threads, 2 busy processes", "resnet20", 32, 64, 2, 5, busy=2),
    # A loss of 3 % at most.
    Case("ResNet-20, 2 threads, wait policy alone", "resnet20", 32, 64, 2, 0.97, way="waiting"),
)
QUICK_BATCH = 8
# So that threads of the other process, which spin for a while after its step, have gone to sleep.
PAUSE = 0.05


def work(case: Case, way: Way, batch: int) -> None:
    """A step for each line that comes in; its processor time and wall time go out."""
    step = prepared(case, way, batch)
    for _ in sys.stdin:
        time.sleep(PAUSE)
        wall, processor = time.perf_counter(), time.process_time()
        step()
        print(json.dumps([time.process_time() - processor, time.perf_counter() - wall]), flush=True)


def be_busy(case: Case, batch: int) -> None:
    """Step after step, as released code takes them, for as long as whoever asked for it lives."""
    asked = os.getppid()
    step = prepared(case, "released", batch)
    print("running", flush=True)
    while os.getppid() == asked:
        step()


def prepared(case: Case, way: Way, batch: int) -> Callable[[], Any]:
    """A step of that way, the first of which has been taken."""
    if way == "waiting":
        os.environ.update(SLEEP)
    import holdfast

    if way == "ours":
        holdfast.tune_cpu()
    import torch

    from holdfast import models

    torch.set_num_threads(case.threads)
    torch.manual_seed(0)
    net = getattr(models, case.net)().eval()
    images = torch.rand(batch, 3, case.size, case.size)
    step = holdfast.adapt(net, "tent") if way == "ours" else plain_tent(net)
    step(images)
    return lambda: step(images)


def plain_tent(net: Any) -> Callable[[Any], Any]:
    """Tent with nothing around it: batch statistics, entropy, SGD on scale and shift."""
    import torch
    from torch import nn

    net.requires_grad_(False)
    trained = []
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
            trained += [layer.weight.requires_grad_(), layer.bias.requires_grad_()]
    optimizer = torch.optim.SGD(trained, lr=1e-4, momentum=0.9)

    def step(images: Any) -> Any:
        logits = net(images)
        entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        entropy.backward()
        optimizer.step()
        return logits.detach()

    return step


def start(*arguments: object) -> subprocess.Popen[str]:
    """A process of this script, with nothing set."""
    environment = {n: v for n, v in os.environ.items() if n not in (*WAIT, *MEMORY)}
    command = [sys.executable, __file__, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)


class Worker:
    """A process that takes steps one way."""

    def __init__(self, number: int, way: Way, batch: int):
        self.process = start("work", number, way, batch)
        self.times: list[tuple[float, float]] = []

    def step(self) -> tuple[float, float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        processor, wall = json.loads(self.process.stdout.readline())
        return processor, wall

    def medians(self) -> tuple[float, float]:
        processor, wall = (statistics.median(times) for times in zip(*self.times, strict=True))
        return processor, wall


def compare(number: int, rounds: int, batch: int) -> tuple[Worker, Worker]:
    """Released code, and the other way, with the times of their steps."""
    case = CASES[number]
    both = Worker(number, "released", batch), Worker(number, case.way, batch)
    busy: list[subprocess.Popen[str]] = []
    try:
        for worker in both:
            worker.step()  # the first is not counted
        busy += [start("busy", number, batch) for _ in range(case.busy)]
        for process in busy:
            assert process.stdout is not None
            process.stdout.readline()  # it is running
        for turn in range(rounds):
            for worker in both if turn % 2 == 0 else both[::-1]:
                worker.times.append(worker.step())
    finally:
        for process in busy:
            process.kill()
        for worker in both:
            worker.process.communicate()
    return both


def main(rounds: int = 10, quick: bool = False) -> None:
    """What holdfast's CPU settings are worth.

    Args:
        rounds: steps each way takes.
        quick: two rounds on small batches.
    """
    from holdfast.util.terminal import columns, show

    load = os.getloadavg()[0]
    if load > 0.5 and not quick:
        print(f"Others are busy on this machine (load {load:.1f}): times will tell of them too.")
    heads = ("step of tent", "processor s", "ours", "gain", "wall s", "ours", "gain", "wanted", "")
    table = columns(*heads)
    for number, case in enumerate(CASES):
        size = QUICK_BATCH if quick else case.batch
        released, ours = (w.medians() for w in compare(number, 2 if quick else rounds, size))
        gains = [theirs / mine for theirs, mine in zip(released, ours, strict=True)]
        judged = gains[1:] if case.wall_alone else gains
        cells = [
            cell
            for theirs, mine, gain in zip(released, ours, gains, strict=True)
            for cell in (f"{theirs:.3f}", f"{mine:.3f}", f"{gain:.2f} ×")
        ]
        wanted = f"{case.wanted:g} ×{', wall' if case.wall_alone else ''}"
        verdict = "reached" if min(judged) >= case.wanted else "missed"
        table.add_row(f"{case.name}, batch {size}", *cells, wanted, "" if quick else verdict)
    show(table)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["work", number, ("released" | "waiting" | "ours") as way, batch]:
            work(CASES[int(number)], way, int(batch))
        case ["busy", number, batch]:
            be_busy(CASES[int(number)], int(batch))
        case _:
            tyro.cli(main)
