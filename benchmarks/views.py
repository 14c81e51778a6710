"""What an augmented view costs over the forward it is for, as CoTTA takes 32 of them a batch.

Each round times a plain forward, then a view and its forward, so that a machine that slows down
slows both.

    python benchmarks/views.py --rounds 10
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import torch
import tyro
from meter import milliseconds

from holdfast.augment import Augment, Augmentation
from holdfast.draws import Draws
from holdfast.nets import resnext29


@dataclass
class Trial:
    augment: Augmentation = "cotta"
    rounds: int = 10
    batch: int = 64
    side: int = 32
    device: str = "cpu"
    threads: int | None = None
    """None: as many as torch takes by itself."""


@torch.no_grad()
def main(trial: Trial) -> None:
    if trial.threads:
        torch.set_num_threads(trial.threads)
    device = torch.device(trial.device)
    torch.manual_seed(0)
    net = resnext29(100).eval().to(device, memory_format=torch.channels_last)
    images = torch.rand(trial.batch, 3, trial.side, trial.side, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    augment = Augment(trial.augment, Draws(0, device))
    net(augment(images))
    views, plain, augmented = [], [], []
    for _ in range(trial.rounds):
        views.append(milliseconds(lambda: augment(images), device))
        plain.append(milliseconds(lambda: net(images), device))
        augmented.append(milliseconds(lambda: net(augment(images)), device))
    ratios = [both / alone for both, alone in zip(augmented, plain, strict=True)]
    print(f"view {min(views):.1f} ms, forward {min(plain):.1f} ms, both {min(augmented):.1f} ms")
    print(
        f"augmented ÷ plain forward: {min(augmented) / min(plain):.3f} (fastest rounds), "
        f"{median(ratios):.3f} (median of rounds)"
    )


if __name__ == "__main__":
    main(tyro.cli(Trial))
