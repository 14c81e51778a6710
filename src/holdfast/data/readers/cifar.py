"""CIFAR-10 and CIFAR-100, the clean sets as published.

The binary files are mapped. The pickled ones ("python version") cannot be: each process that reads
one holds its images, 31 MB for a test set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from holdfast.data.images import Array, Images, Joined, Lazy, check_labels
from holdfast.data.readers.arrays import ArrayImages, check_there, read_npz
from holdfast.data.readers.pickles import read_pickle
from holdfast.util.words import listed

SIDE = 32
PIXELS = 3 * SIDE * SIDE


@dataclass(frozen=True)
class Clean:
    """Where a clean set lies, by split."""

    classes: int
    python: dict[str, tuple[str, ...]]
    binary: dict[str, tuple[str, ...]]
    labels: str
    """Name of the labels in the pickled files."""
    label_bytes: int
    """Bytes before the pixels of a binary record; the last of them is the label."""


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

CLEAN = {
    "cifar10": Clean(
        10,
        {
            "train": tuple(f"cifar-10-batches-py/{name}" for name in _BATCHES),
            "test": ("cifar-10-batches-py/test_batch",),
        },
        {
            "train": tuple(f"cifar-10-batches-bin/{name}.bin" for name in _BATCHES),
            "test": ("cifar-10-batches-bin/test_batch.bin",),
        },
        "labels",
        1,
    ),
    "cifar100": Clean(
        100,
        {"train": ("cifar-100-python/train",), "test": ("cifar-100-python/test",)},
        {"train": ("cifar-100-binary/train.bin",), "test": ("cifar-100-binary/test.bin",)},
        "fine_labels",
        2,
    ),
}


def read_clean(name: str, root: Path, split: str = "test") -> Images:
    """The clean set below a folder: python version, binary version, or `cifar100_test.npz`."""
    clean = CLEAN[name]
    npz = root / f"{name}_{split}.npz"
    if npz.is_file():
        return read_npz(npz, clean.classes)
    for files, read in ((clean.python[split], read_python), (clean.binary[split], read_binary)):
        paths = [root / file for file in files]
        if any(path.is_file() for path in paths):
            for path in paths:
                check_there(path)
            parts = [read(clean, path) for path in paths]
            return parts[0] if len(parts) == 1 else Joined(parts)
    raise FileNotFoundError(
        f"There is no {name} below {root}: expected {clean.python[split][0]}, "
        f"{clean.binary[split][0]} or {npz.name}. Get it with: holdfast data get {name}"
    )


def read_python(clean: Clean, path: Path) -> ArrayImages:
    """A pickled file. Its images stay in it until a process asks for one."""
    _, labels = _unpickle(clean, path)
    rows = Lazy(partial(_pixels, clean, path))
    return ArrayImages(rows, labels, clean.classes, channels_last=False)


def _pixels(clean: Clean, path: Path) -> Array:
    return _unpickle(clean, path)[0]


def _unpickle(clean: Clean, path: Path) -> tuple[Array, Array]:
    contents = read_pickle(path)
    missing = {"data", clean.labels} - contents.keys()
    if missing:
        raise ValueError(f"{path} has no {listed(sorted(missing))}; it has {listed(contents)}.")
    labels = check_labels(np.asarray(contents[clean.labels]), path, clean.classes)
    pixels, expected = np.asarray(contents["data"]), (len(labels), PIXELS)
    if pixels.dtype != np.uint8 or pixels.shape != expected:
        raise ValueError(
            f"{path}: data is {pixels.dtype} of shape {pixels.shape}; expected uint8 of shape "
            f"{expected}, one row for each label."
        )
    return pixels.reshape(-1, 3, SIDE, SIDE), labels


def read_binary(clean: Clean, path: Path) -> ArrayImages:
    """A file of records, mapped."""
    size, record = path.stat().st_size, clean.label_bytes + PIXELS
    if size == 0 or size % record:
        raise ValueError(
            f"{path} is cut short, or something else: {size} bytes, expected a multiple of "
            f"{record} ({clean.label_bytes} for labels, {PIXELS} for pixels)."
        )
    labels = check_labels(_map_records(clean, path)["labels"][:, -1], path, clean.classes)
    rows = Lazy(partial(_map_pixels, clean, path))
    return ArrayImages(rows, labels, clean.classes, channels_last=False)


def _map_records(clean: Clean, path: Path) -> Array:
    fields = [("labels", np.uint8, (clean.label_bytes,)), ("pixels", np.uint8, (3, SIDE, SIDE))]
    return np.memmap(path, np.dtype(fields), "r")


def _map_pixels(clean: Clean, path: Path) -> Array:
    pixels: Array = _map_records(clean, path)["pixels"]
    return pixels
