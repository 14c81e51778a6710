"""What a fleet costs: a grouped step beside a loop over adapters and beside one shared adapter that
is given all images at once; and a stream's memory, its beginning, its leaving and its coming back.

Turns are taken in one process, each in every round; ratios are medians of those within a round.
Methods that filter images are to be set so that they keep taking steps; how many did is printed.

    python benchmarks/fleet.py --streams 16 --batch 4 --rounds 20
    python benchmarks/fleet.py --method "eata(redundancy=2,lr=1e-9)+debias+steady"
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import holdfast

print(holdfast.tune_cpu())  # before torch is loaded

import torch  # noqa: E402
import tyro  # noqa: E402
from subject import make_subject  # noqa: E402

from holdfast.models import resnet50  # noqa: E402
from holdfast.util.terminal import columns, show  # noqa: E402


@dataclass(frozen=True)
class Settings:
    """What a fleet costs."""

    method: str = "tent"
    streams: int = 16
    batch: int = 4
    rounds: int = 20
    threads: int | None = None
    """CPU threads; torch's own choice if not given."""
    held: int = 50
    """Streams of a ResNet-50 whose memory, saving and coming back is measured; 0: none."""


def milliseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def compare_steps(settings: Settings) -> None:
    """Images a second of a fleet's step, and of what one would do without it."""
    method, size = settings.method, settings.batch
    subject = make_subject("resnet20", settings.streams * size, torch.device("cpu"))
    model, source, images = subject.net, subject.source, subject.images
    parts = dict(enumerate(images.split(size)))
    adapters = [holdfast.adapt(model, method, source=source) for _ in parts]
    shared = holdfast.adapt(model, method, source=source)
    fleet = holdfast.Fleet(model, method, source=source)
    named = {str(number): part for number, part in parts.items()}
    runs: dict[str, Callable[[], object]] = {
        "loop over adapters": lambda: [adapters[n](part) for n, part in parts.items()],
        "grouped step": lambda: fleet.step(named),
        "one shared adapter": lambda: shared(images),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(settings.rounds + 1):
        for name, run in runs.items():
            spent = milliseconds(run)
            if number:  # the first warms up
                times[name].append(spent)
    table = columns("", "images a second (median)", "grouped step beside it: median", "all rounds")
    for name, taken in times.items():
        grouped = times["grouped step"]
        ratios = sorted(
            own / grouped_time for own, grouped_time in zip(taken, grouped, strict=True)
        )
        rate = 1e3 * len(images) / statistics.median(taken)
        spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        table.add_row(name, f"{rate:.0f}", f"{statistics.median(ratios):.2f} ×", spread)
    show(table)
    steps = [
        sum(adapter.last.stepped for adapter in adapters),
        sum(fleet.last(name).stepped for name in named),
        int(shared.last.stepped),
    ]
    print(f"Steps taken at the last batch: {dict(zip(runs, steps, strict=True))}")


def measure_streams(settings: Settings) -> None:
    """A stream's memory, and the time that it takes to begin, leave and come back."""
    model, source = resnet50(1000).eval(), None
    if holdfast.compose(settings.method).needs:
        source = holdfast.Source.from_loader(model, [(torch.rand(8, 3, 64, 64), torch.arange(8))])
    with tempfile.TemporaryDirectory() as folder:
        fleet = holdfast.Fleet(model, settings.method, source=source, folder=folder)
        names = [str(number) for number in range(settings.held)]
        adding = [milliseconds(lambda name=name: fleet.add(name)) for name in names]
        images = torch.rand(2, 3, 64, 64)
        for name in names:
            fleet(name, images)
        own = statistics.mean(fleet._seats[name].held.bytes() for name in names)
        saving = [milliseconds(lambda name=name: fleet.save(name)) for name in names]
        again = holdfast.Fleet(model, settings.method, source=source, folder=folder)
        back = [milliseconds(lambda name=name: again.last(name)) for name in names]
    table = columns("a stream on ResNet-50", "median", "largest")
    table.add_row("memory of its tensors", f"{own / 1e6:.3f} MB", "")
    for name, taken in {"add": adding, "save": saving, "bring back": back}.items():
        table.add_row(name, f"{statistics.median(taken):.2f} ms", f"{max(taken):.2f} ms")
    show(table)


def main(settings: Settings) -> None:
    warnings.simplefilter("ignore")  # random images make predictions collapse
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    compare_steps(settings)
    if settings.held:
        measure_streams(settings)


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
