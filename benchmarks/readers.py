"""Images per second of each reader, one core, from files it writes to a temporary folder first.

    python benchmarks/readers.py [--count 4000]

In this process, by second of processor time, in batches of 64 drawn in random order; and through a
DataLoader with one worker, its start included, by the clock.
The files have just been written, so the disk's own speed is not in the numbers. Pictures are smooth
with some noise, and about as large on disk as photographs.
"""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F
from torch.utils.data import DataLoader

from holdfast.data.images import Images
from holdfast.data.readers.cifar import CLEAN, read_binary, read_python
from holdfast.data.readers.folders import FolderImages, read_folder
from holdfast.data.readers.sets import open_data

BATCH = 64


@dataclass
class Study:
    count: int = 4000
    """Images of 32×32; a tenth as many of 224×224."""
    rounds: int = 3


def main(study: Study) -> None:
    torch.set_num_threads(1)
    table = Table("reader", "images/s", "with a worker", title="Best of the rounds")
    with tempfile.TemporaryDirectory() as folder:
        for name, reader in readers(Path(folder), study.count).items():
            rounds = range(study.rounds)
            direct = max(speed(reader, read_directly, time.process_time) for _ in rounds)
            loaded = max(speed(reader, read_by_loader, time.perf_counter) for _ in rounds)
            table.add_row(name, f"{direct:,.0f}", f"{loaded:,.0f}")
    Console(width=100).print(table)


def speed(images: Images, read: Callable[[Images], int], clock: Callable[[], float]) -> float:
    start = clock()
    return read(images) / (clock() - start)


def read_directly(images: Images) -> int:
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return sum(len(images.images(batch.tolist())) for batch in order.split(BATCH))


def read_by_loader(images: Images) -> int:
    return sum(len(batch) for batch, _ in DataLoader(images, BATCH, shuffle=True, num_workers=1))


def readers(root: Path, count: int) -> dict[str, Images]:
    small, labels = pictures(count, 32), np.arange(count) % 100
    arrays = root / "arrays"
    arrays.mkdir()
    np.save(arrays / "labels.npy", np.tile(labels, 5))
    np.save(arrays / "fog.npy", np.concatenate([small] * 5))
    np.savez(root / "stored.npz", images=small, labels=labels)
    np.savez_compressed(root / "packed.npz", images=small, labels=labels)
    rows = small.transpose(0, 3, 1, 2).reshape(count, -1)
    (root / "test").write_bytes(pickle.dumps({"data": rows, "fine_labels": labels.tolist()}, 2))
    records = np.concatenate([np.zeros((count, 1), np.uint8), labels[:, None], rows], 1)
    (root / "test.bin").write_bytes(records.astype(np.uint8).tobytes())
    for number, picture in enumerate(pictures(count // 10, 224)):
        save(picture, root / f"folders/fog/5/{number % 10}/{number}.JPEG", (224, 224))
    for number, picture in enumerate(pictures(count // 10, 224)):
        save(picture, root / f"clean/{number % 10}/{number}.JPEG", (500, 375))
    cifar = CLEAN["cifar100"]
    fog = {"corruptions": ["fog"], "clean": False}
    folders = open_data(root / "folders", **fog)["fog"]
    assert isinstance(folders, FolderImages)
    return {
        "CIFAR-C .npy, mapped": open_data(arrays, **fog)["fog"],
        ".npz, stored, mapped": open_data(root / "stored.npz")["original"],
        ".npz, compressed": open_data(root / "packed.npz")["original"],
        "CIFAR python version": read_python(cifar, root / "test"),
        "CIFAR binary version, mapped": read_binary(cifar, root / "test.bin"),
        ".npz, fog as it is read": open_data(root / "stored.npz")["fog"],
        "ImageNet-C, 224×224 JPEG": folders,
        "500×375 JPEG to 256, crop 224": read_folder(root / "clean"),
    }


def pictures(count: int, side: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    generator = torch.Generator().manual_seed(side)
    coarse = torch.rand(count, 3, side // 8, side // 8, generator=generator)
    smooth = F.interpolate(coarse, size=(side, side), mode="bicubic")
    noisy = smooth + 0.03 * torch.randn(smooth.shape, generator=generator)
    return noisy.clamp(0, 1).mul(255).byte().permute(0, 2, 3, 1).contiguous().numpy()


def save(
    picture: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], path: Path, size: tuple[int, int]
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).resize(size).save(path, quality=85)


if __name__ == "__main__":
    main(tyro.cli(Study))
