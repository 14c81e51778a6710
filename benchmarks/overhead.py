"""What a run costs beside its method: reading images, recording, writing rows and snapshots.

    python benchmarks/overhead.py

ResNet-20 (untrained: its speed is that of a trained one) on the embedded images. Each method is
run twice in this process; the first time makes the images, which are then kept on disk, and is
not counted. A method's own time is what the rows say; all else of the loop's time is overhead.
"""

import tempfile
import time
from pathlib import Path

import tyro

from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.bench.run import perform
from holdfast.util.terminal import columns, show


class Clock:
    """The time from a run's start, of which it hears, to the moment that it is asked."""

    start = None

    def __call__(self, progress):
        if self.start is None:
            self.start = time.perf_counter()

    @property
    def spent(self):
        return time.perf_counter() - self.start


def main(
    methods: tuple[str, ...] = ("frozen", "bn", "tent", "eata+debias"),
    model: str = "resnet20",
    limit: int = 320,
    snapshot: float = 60.0,
    rounds: int = 3,
    threads: int = 1,
) -> None:
    """limit: images of each domain. snapshot: seconds between two snapshots."""
    shares: dict[str, list[float]] = {method: [] for method in methods}
    with tempfile.TemporaryDirectory() as folder:
        materials = Materials(Path(folder) / "cache")
        for number in range(rounds + 1):
            for method in methods:
                run = Run.of(method, model=model, limit=limit, threads=threads)
                clock, out = Clock(), Path(folder) / str(number)
                done = perform(run, materials, out, tell=clock, every=snapshot)
                spent = clock.spent
                if number:
                    shares[method].append(1 - done.rows["time"].sum() / spent)
    table = columns("method", "overhead in % of a run's time (median)", "all rounds")
    for method, by_round in shares.items():
        middle = sorted(by_round)[len(by_round) // 2]
        table.add_row(method, f"{100 * middle:.2f}", " ".join(f"{100 * x:.2f}" for x in by_round))
    show(table)


if __name__ == "__main__":
    tyro.cli(main)
