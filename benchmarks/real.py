"""Methods on real CIFAR-100 images under simple corruptions, one after the other, no reset between.

    HOLDFAST_DATA=folder python benchmarks/real.py [--limit 2000] [--methods eata eata+debias]

The folder holds `cifar100_test.npz`, `cifar100_train10k.npz` and `cifar100_resnet20.safetensors`.
The corruptions are stand-ins of our own, not those of CIFAR-100-C: accuracies compare methods with
each other, and with no published number.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

import holdfast
from holdfast.nets import resnet20

MEAN, STD = (0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)
BATCH = 64


@dataclass
class Study:
    methods: list[str] = field(
        default_factory=lambda: [
            "frozen",
            "bn",
            "tent",
            "tent+debias",
            "eata",
            "eata+debias",
            "eata+debias+consistency",
            "debias",
        ]
    )
    limit: int = 2000
    """Images of each domain."""
    preset: str | None = None
    seed: int = 0


def main(study: Study) -> None:
    folder = Path(os.environ.get("HOLDFAST_DATA", ""))
    net = resnet20()
    net.load_state_dict(load_file(folder / "cifar100_resnet20.safetensors"))
    model = holdfast.normalized(net, MEAN, STD).eval()
    images, labels = read(folder / "cifar100_test.npz")
    source = holdfast.Source.from_loader(
        model,
        batches(*read(folder / "cifar100_train10k.npz")),
        fisher=batches(images[-2000:], labels[-2000:]),
    )
    names = list(CORRUPTIONS)
    table = Table("method", *names, "mean", "ECE", "ms/batch", title=f"preset={study.preset}")
    for method in study.methods:
        generator = torch.Generator().manual_seed(study.seed)
        adapter = holdfast.adapt(model, method, source=source, preset=study.preset)
        start, count, scores, certain, right = time.perf_counter(), 0, [], [], []
        for corrupt in CORRUPTIONS.values():
            order = torch.randperm(len(images), generator=generator)[: study.limit]
            hits = []
            for clean, truth in batches(images[order], labels[order]):
                logits = adapter(corrupt(clean, generator).clamp(0, 1))
                confidence, label = logits.softmax(1).max(1)
                hits.append(label == truth)
                certain.append(confidence)
                count += 1
            scores.append(100 * torch.cat(hits).float().mean().item())
            right += hits
        spent = 1000 * (time.perf_counter() - start) / count
        mean = sum(scores) / len(scores)
        error = 100 * calibration_error(torch.cat(certain), torch.cat(right))
        numbers = [*scores, mean, error, spent]
        table.add_row(method, *(f"{number:.1f}" for number in numbers))
        print(method, f"{mean:.2f}", flush=True)
    Console(width=160).print(table)


def read(path: Path) -> tuple[Tensor, Tensor]:
    with np.load(path) as data:
        images, labels = torch.from_numpy(data["images"]), torch.from_numpy(data["labels"])
    return images.permute(0, 3, 1, 2).float() / 255, labels.long()


def batches(images: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(images.split(BATCH), labels.split(BATCH), strict=True))


def noise(images: Tensor, generator: torch.Generator) -> Tensor:
    return images + 0.1 * torch.randn(images.shape, generator=generator)


def salt_and_pepper(images: Tensor, generator: torch.Generator) -> Tensor:
    chance = torch.rand(images.shape, generator=generator)
    return torch.where(chance < 0.035, 0.0, torch.where(chance > 0.965, 1.0, images))


def blur(images: Tensor, generator: torch.Generator) -> Tensor:
    return F.avg_pool2d(F.pad(images, (2, 2, 2, 2), mode="reflect"), 5, 1)


def pixelate(images: Tensor, generator: torch.Generator) -> Tensor:
    return F.interpolate(F.interpolate(images, scale_factor=0.5, mode="area"), scale_factor=2)


def haze(images: Tensor, generator: torch.Generator) -> Tensor:
    coarse = torch.rand(len(images), 1, 4, 4, generator=generator)
    thickness = F.interpolate(coarse, images.shape[-2:], mode="bilinear", align_corners=False)
    return images * (1 - 0.8 * thickness) + 0.8 * thickness


def contrast(images: Tensor, generator: torch.Generator) -> Tensor:
    mean = images.mean((2, 3), keepdim=True)
    return 0.2 * (images - mean) + mean


def brightness(images: Tensor, generator: torch.Generator) -> Tensor:
    return images + 0.3


def clean(images: Tensor, generator: torch.Generator) -> Tensor:
    return images


CORRUPTIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
    each.__name__: each
    for each in (noise, salt_and_pepper, blur, pixelate, haze, contrast, brightness, clean)
}


def calibration_error(confidence: Tensor, right: Tensor, bins: int = 15) -> float:
    """Expected calibration error: mean gap of confidence and accuracy over equal bins."""
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gap = torch.zeros(bins).index_add_(0, place, confidence - right.float())
    return (gap.abs().sum() / len(confidence)).item()


if __name__ == "__main__":
    warnings.simplefilter("default")
    main(tyro.cli(Study))
