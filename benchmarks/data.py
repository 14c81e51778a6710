"""The corruption maker: how fast it is, and what it does to a real network. One core.

    python benchmarks/data.py speed [--rounds 10]
    HOLDFAST_DATA=folder python benchmarks/data.py accuracy [--images 2000]
    python benchmarks/data.py readers [--count 4000]

`speed` times it beside imagecorruptions-imaug, in turns, with ImageNet-C's parameters at severities
1 to 5. `accuracy` streams real CIFAR-100 test images at severity 5 of CIFAR-C's parameters through
a ResNet-20; the folder holds `cifar100_test.npz` and `cifar100_resnet20.safetensors`.
`readers` is `benchmarks/readers.py`: images per second of each reader.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import readers
import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

import holdfast
from holdfast.data.corrupt.corruptions import CORRUPTIONS, corrupt
from holdfast.models import build

SEVERITIES = range(1, 6)
BATCHES = {32: 256, 224: 8}  # images that the maker gets at once, by side
# Accuracy of bn by corruption that another regeneration of severity 5 gave.
ELSEWHERE = (27, 27, 22, 51, 30, 48, 52, 38, 40, 43, 55, 50, 40, 42, 33)


def speed(rounds: int = 10) -> None:
    """Milliseconds an image, beside imagecorruptions-imaug."""
    import cv2
    import imagecorruptions

    warnings.simplefilter("ignore")
    cv2.setNumThreads(1)
    for side, count in BATCHES.items():
        images = photographs(count, side)
        arrays = images.permute(0, 2, 3, 1).contiguous().numpy()
        few = arrays[: max(1, count // 32)]

        def ours(name: str, images: Tensor = images) -> None:
            for severity in SEVERITIES:
                corrupt(images, name, severity, table="imagenet")

        def theirs(name: str, arrays: np.ndarray = few) -> None:
            for severity in SEVERITIES:
                for array in arrays:
                    imagecorruptions.corrupt(array, corruption_name=name, severity=severity)

        times = np.empty((2, len(CORRUPTIONS), rounds))
        for number, name in enumerate(CORRUPTIONS):
            theirs(name), ours(name)  # compiles, fills tables
            for turn in range(rounds):
                times[0, number, turn] = milliseconds(theirs, name) / len(few) / len(SEVERITIES)
                times[1, number, turn] = milliseconds(ours, name) / count / len(SEVERITIES)
        show(side, times)


def milliseconds(run: Callable[[str], None], name: str) -> float:
    """Of the processor: what else the machine does counts for neither."""
    start = time.process_time()
    run(name)
    return 1e3 * (time.process_time() - start)


def show(side: int, times: np.ndarray) -> None:
    """Medians over rounds; for ratios the 10th to 90th percentile of those within a round.

    Two corruptions weigh much in the sum: imagecorruptions-imaug reads its picture of ice anew for
    each image, and zooms slowly. So there is a sum without them too.
    """
    table = Table(title=f"{side}×{side}: milliseconds an image, and images a second")
    for head in ("", "imagecorruptions-imaug", "holdfast", "holdfast, a second", "faster"):
        table.add_column(head, justify="right" if head else "left")
    heavy = [CORRUPTIONS.index(name) for name in ("zoom_blur", "frost")]
    rows = dict(zip(CORRUPTIONS, times.swapaxes(0, 1), strict=True))
    rows["all 15"] = times.sum(1)
    rows["all but zoom, frost"] = np.delete(times, heavy, 1).sum(1)
    for name, (theirs, ours) in rows.items():
        their_time, our_time, low, high = (
            *np.median((theirs, ours), 1),
            *np.percentile(theirs / ours, (10, 90)),
        )
        ratio = f"{their_time / our_time:.1f} ({low:.1f}-{high:.1f})"
        table.add_row(name, f"{their_time:.3f}", f"{our_time:.4f}", f"{1e3 / our_time:,.0f}", ratio)
    Console(width=100).print(table)


def photographs(count: int, side: int) -> Tensor:
    """Smooth shades, edges and a little grain: what counts for time is that no part is flat."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(count, 3, 6, 6, generator=generator)
    shade = F.interpolate(coarse, size=(side, side), mode="bicubic")
    grain = torch.randn(count, 3, side, side, generator=generator)
    values = 0.5 + 0.15 * shade + 0.2 * shade.flip(1).sign() + 0.03 * grain
    return values.clamp(0, 1).mul(255).byte()


def accuracy(images: int = 2000, seed: int = 0, frost: Path | None = None) -> None:
    """Accuracy of ResNet-20 on CIFAR-100, frozen and with batch statistics, batches of 64."""
    folder = Path(os.environ.get("HOLDFAST_DATA", ""))
    model = build("resnet20", folder / "cifar100_resnet20.safetensors")
    with np.load(folder / "cifar100_test.npz") as file:
        clean = torch.from_numpy(file["images"][:images]).permute(0, 3, 1, 2)
        labels = torch.from_numpy(file["labels"][:images]).long()
    table = Table("", "frozen %", "bn %", "bn elsewhere %", title=f"severity 5, {images} images")
    rows = []
    for name, elsewhere in zip(CORRUPTIONS, ELSEWHERE, strict=True):
        made = corrupt(clean, name, 5, table="cifar", seed=seed, frost=frost)
        rows.append(
            (*(right(model, method, made, labels) for method in ("frozen", "bn")), elsewhere)
        )
        table.add_row(name, *(f"{value:.1f}" for value in rows[-1]))
    table.add_row("mean", *(f"{value:.1f}" for value in np.mean(rows, 0)))
    Console(width=100).print(table)


def read_files(count: int = 4000) -> None:
    """Images per second of each reader, as benchmarks/readers.py has it."""
    readers.main(readers.Study(count))


def right(model: torch.nn.Module, method: str, images: Tensor, labels: Tensor) -> float:
    adapter = holdfast.adapt(model, method)
    hits = [
        (adapter(batch.float() / 255).argmax(1) == true).sum()
        for batch, true in zip(images.split(64), labels.split(64), strict=True)
    ]
    return 100 * int(sum(hits)) / len(labels)


if __name__ == "__main__":
    torch.set_num_threads(1)
    commands = {"speed": speed, "accuracy": accuracy, "readers": read_files}
    tyro.extras.subcommand_cli_from_dict(commands)
