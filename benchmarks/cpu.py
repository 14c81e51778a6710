"""What holdfast's CPU settings are worth: `holdfast.tune_cpu()` and the default memory format.

    python benchmarks/cpu.py

Each row compares a step of tent as released code runs it (contiguous tensors, nothing set) with
ours. Settings belong to a process, so there is one process for each, and they take turns, step by
step. Busy rows have two processes beside them that do nothing but count.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

import tyro

SET = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


@dataclass(frozen=True)
class Case:
    """A net, its images, and what is compared."""

    name: str
    net: str
    size: int
    batch: int
    threads: int
    busy: int = 0
    wait_only: bool = False


CASES = (
    Case("ResNeXt-29", "resnext29", 32, 32, 1),
    Case("ResNet-50 at 160²", "resnet50", 160, 8, 1),
    Case("ResNet-20, 2 threads, 2 busy processes", "resnet20", 32, 64, 2, busy=2),
    Case("ResNet-20, 2 threads, wait policy alone", "resnet20", 32, 64, 2, wait_only=True),
)


def work(case: Case, ours: bool) -> None:
    """One step for each line that comes in; its processor time and wall time go out."""
    import holdfast

    if ours and case.wait_only:
        os.environ["OMP_WAIT_POLICY"] = "passive"
    elif ours:
        holdfast.tune_cpu()
    import torch

    from holdfast import models as nets

    torch.set_num_threads(case.threads)
    torch.manual_seed(0)
    plain = not ours or case.wait_only
    adapter = holdfast.adapt(
        getattr(nets, case.net)().eval(), "tent", memory_format="contiguous" if plain else "auto"
    )
    images = torch.rand(case.batch, 3, case.size, case.size)
    adapter(images)
    for _ in sys.stdin:
        wall, processor = time.perf_counter(), time.process_time()
        adapter(images)
        print(json.dumps([time.process_time() - processor, time.perf_counter() - wall]), flush=True)


class Worker:
    def __init__(self, number: int, ours: bool):
        clean = {name: value for name, value in os.environ.items() if name not in SET}
        command = [
            sys.executable,
            __file__,
            "--case",
            str(number),
            "--ours" if ours else "--no-ours",
        ]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=clean, stdin=pipe, stdout=pipe, text=True)

    def step(self) -> tuple[float, float]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        processor, wall = json.loads(self.process.stdout.readline())
        return processor, wall

    def end(self) -> None:
        self.process.communicate()


def compare(number: int, rounds: int) -> tuple[list[float], list[float], list[float], list[float]]:
    """Processor time and wall time of released code, and of ours, in turns."""
    workers = [Worker(number, ours) for ours in (False, True)]
    counting = [sys.executable, "-c", "while True: pass"]
    for worker in workers:
        worker.step()  # the first is not counted
    busy = [subprocess.Popen(counting) for _ in range(CASES[number].busy)]
    try:
        found = [[worker.step() for worker in workers] for _ in range(rounds)]
    finally:
        for process in busy:
            process.kill()
        for worker in workers:
            worker.end()
    released, ours = zip(*found, strict=True)
    return tuple(list(each) for each in (*zip(*released, strict=True), *zip(*ours, strict=True)))


def main(rounds: int = 10, case: int | None = None, ours: bool = False) -> None:
    """rounds: steps of each. case, ours: for the processes that this one starts."""
    if case is not None:
        work(CASES[case], ours)
        return
    from holdfast.util.terminal import columns, show

    table = columns("step of tent", "processor s", "ours", "ratio", "wall s", "ours", "ratio")
    for number, one in enumerate(CASES):
        times = [statistics.median(each) for each in compare(number, rounds)]
        processor, wall, our_processor, our_wall = times
        table.add_row(
            one.name,
            f"{processor:.2f}",
            f"{our_processor:.2f}",
            f"{processor / our_processor:.2f} ×",
            f"{wall:.2f}",
            f"{our_wall:.2f}",
            f"{wall / our_wall:.2f} ×",
        )
    show(table)


if __name__ == "__main__":
    tyro.cli(main)
