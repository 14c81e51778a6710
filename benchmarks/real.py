"""Methods on real CIFAR-100 images: 15 corruptions at severity 5, then clean, no reset between.

    HOLDFAST_DATA=folder python benchmarks/real.py [--limit 500] [--methods eata eata+debias]

The folder holds `cifar100_test.npz`, `cifar100_train10k.npz` and `cifar100_resnet20.safetensors`.
The corruptions are made by `holdfast.data`, not taken from CIFAR-100-C: accuracies compare methods
with each other, and with no published number.
"""

from __future__ import annotations

import os
import statistics
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file
from torch import Tensor

import holdfast
from holdfast.data.corruptions import CORRUPTIONS, corrupt
from holdfast.nets import resnet20

MEAN, STD = (0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)
BATCH = 64

METHODS = (
    "frozen",
    "bn",
    "tent",
    "eta",
    "eata",
    "rdumb",
    "sar",
    "rotta",
    "t3a",
    "tsd",
    "ttac",
    "rmt",
    "debias",
    "tent+debias",
    "eata+debias",
    "eata+ttac",
    "rmt+debias",
    "eata+debias+consistency",
    "eata+debias+consistency(augment=cotta)",
    "cotta",
    "cotta+debias",
    "cotta+debias+consistency",
    "cotta+debias+consistency(augment=cotta)",
)


@dataclass
class Study:
    methods: tuple[str, ...] = METHODS
    limit: int = 500
    """Images of each domain."""
    cotta_limit: int = 200
    """The same for CoTTA, whose views cost 32 forwards a batch."""
    preset: str | None = None
    seed: int = 0


def main(study: Study) -> None:
    folder = Path(os.environ.get("HOLDFAST_DATA", ""))
    net = resnet20()
    net.load_state_dict(load_file(folder / "cifar100_resnet20.safetensors"))
    model = holdfast.normalized(net, MEAN, STD).eval()
    images, labels = read(folder / "cifar100_test.npz")
    train, train_labels = read(folder / "cifar100_train10k.npz")
    shuffled = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    source = holdfast.Source.from_loader(
        model,
        batches(train[shuffled], train_labels[shuffled]),
        fisher=batches(images[-2000:], labels[-2000:]),
    )
    domains = make_domains(images, labels, study)
    table = Table(
        "method", "images", *(name[:8] for name, *_ in domains), "mean 16", "mean 15", "ECE", "ms",
        title=f"preset={study.preset}, seed {study.seed}; ms: median of a batch of {BATCH}",
    )  # fmt: skip
    for method in study.methods:
        adapter = holdfast.adapt(model, method, source=source, preset=study.preset, seed=study.seed)
        limit = study.cotta_limit if method.startswith("cotta") else study.limit
        scores, certain, right, spent = [], [], [], []
        for _, pictures, truth in domains:
            hits = []
            for some, known in batches(pictures[:limit], truth[:limit]):
                start = time.perf_counter()
                logits = adapter(some)
                spent.append(1000 * (time.perf_counter() - start))
                confidence, label = logits.softmax(1).max(1)
                hits.append(label == known)
                certain.append(confidence)
            scores.append(100 * torch.cat(hits).float().mean().item())
            right += hits
        error = 100 * calibration_error(torch.cat(certain), torch.cat(right))
        means = [statistics.fmean(scores), statistics.fmean(scores[:-1])]
        numbers = [*scores, *means, error, statistics.median(spent)]
        table.add_row(method, str(limit), *(f"{number:.1f}" for number in numbers))
        print(method, *(f"{number:.1f}" for number in numbers), flush=True)
    Console(width=240).print(table)


def make_domains(images: Tensor, labels: Tensor, study: Study) -> list[tuple[str, Tensor, Tensor]]:
    """Every domain has images of its own choice, in an order of its own."""
    generator = torch.Generator().manual_seed(study.seed)
    found = []
    for name in (*CORRUPTIONS, "original"):
        order = torch.randperm(len(images), generator=generator)[: study.limit]
        some = images[order]
        if name != "original":
            some = corrupt(some, name, severity=5, indices=order, seed=study.seed, table="cifar")
        found.append((name, some, labels[order]))
    return found


def read(path: Path) -> tuple[Tensor, Tensor]:
    with np.load(path) as data:
        images, labels = torch.from_numpy(data["images"]), torch.from_numpy(data["labels"])
    return images.permute(0, 3, 1, 2).float() / 255, labels.long()


def batches(images: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(images.split(BATCH), labels.split(BATCH), strict=True))


def calibration_error(confidence: Tensor, right: Tensor, bins: int = 15) -> float:
    """Expected calibration error: mean gap of confidence and accuracy over equal bins."""
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gap = torch.zeros(bins).index_add_(0, place, confidence - right.float())
    return (gap.abs().sum() / len(confidence)).item()


if __name__ == "__main__":
    warnings.simplefilter("default")
    main(tyro.cli(Study))
