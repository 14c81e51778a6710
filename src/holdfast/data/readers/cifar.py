"""CIFAR-10 and CIFAR-100, the clean sets as published.

The binary files are mapped. The pickled ones ("python version") cannot be: each process that reads
one holds its images, 31 MB for a test set. Nothing that stands in a pickle is run.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.images import Array, Images, Joined, Lazy, check_labels
from holdfast.data.readers.arrays import ArrayImages, check_there, read_npz
from holdfast.util.words import listed

SIDE = 32
PIXELS = 3 * SIDE * SIDE


@dataclass(frozen=True)
class Clean:
    """A clean set as it was published."""

    classes: int
    folders: tuple[str, str]
    """Of the python version and of the binary one."""
    files: dict[str, tuple[str, ...]]
    """By split; binary ones end in .bin besides."""
    labels: str
    """Name of the labels in the pickled files."""
    label_bytes: int
    """Bytes before the pixels of a binary record; the last of them is the label."""


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

CLEAN = {
    "cifar10": Clean(
        10,
        ("cifar-10-batches-py", "cifar-10-batches-bin"),
        {"train": _BATCHES, "test": ("test_batch",)},
        "labels",
        1,
    ),
    "cifar100": Clean(
        100,
        ("cifar-100-python", "cifar-100-binary"),
        {"train": ("train",), "test": ("test",)},
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
    expected = []
    for read, folder, ending in (
        (read_python, clean.folders[0], ""),
        (read_binary, clean.folders[1], ".bin"),
    ):
        paths = [root / folder / f"{file}{ending}" for file in clean.files[split]]
        expected.append(str(paths[0].relative_to(root)))
        if any(path.is_file() for path in paths):
            for path in paths:
                check_there(path)
            parts = [read(clean, path) for path in paths]
            return parts[0] if len(parts) == 1 else Joined(parts)
    raise FileNotFoundError(
        f"There is no {name} below {root}: expected {', '.join(expected)} or {npz.name}. "
        f"Get it with: holdfast data get {name}"
    )


def read_python(clean: Clean, path: Path) -> ArrayImages:
    """A pickled file. Its images stay in it until a process asks for one."""
    return _read(_unpickle, clean, path)


def read_binary(clean: Clean, path: Path) -> ArrayImages:
    """A file of records, mapped."""
    return _read(_map, clean, path)


Open = Callable[[Clean, Path], tuple[Array, Array]]
"""The pixels of a file, (images, channels, height, width), and their labels."""


def _read(open_file: Open, clean: Clean, path: Path) -> ArrayImages:
    _, labels = open_file(clean, path)
    rows = Lazy(partial(_pixels, open_file, clean, path))
    return ArrayImages(rows, labels, clean.classes, channels_last=False)


def _pixels(open_file: Open, clean: Clean, path: Path) -> Array:
    return open_file(clean, path)[0]


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


def _map(clean: Clean, path: Path) -> tuple[Array, Array]:
    size, record = path.stat().st_size, clean.label_bytes + PIXELS
    if size == 0 or size % record:
        raise ValueError(
            f"{path} is cut short, or something else: {size} bytes, expected a multiple of "
            f"{record} ({clean.label_bytes} for labels, {PIXELS} for pixels)."
        )
    fields = [("labels", np.uint8, (clean.label_bytes,)), ("pixels", np.uint8, (3, SIDE, SIDE))]
    records = np.memmap(path, np.dtype(fields), "r")
    return records["pixels"], check_labels(records["labels"][:, -1], path, clean.classes)


# What numpy itself names in a pickled array, without an import of a private module.
_reconstruct: Any = np.zeros(0).__reduce__()[0]


# A pickle may set the attributes of what it names, even a function's defaults. These have none.
class _Dtype:
    __slots__ = ()

    def __call__(self, name: str, align: object = False, copy: object = False) -> np.dtype[Any]:
        # Old pickles give 0 and 1 here, which numpy warns about.
        return np.dtype(name, bool(align), bool(copy))


class _Encode:
    __slots__ = ()

    def __call__(self, text: str, encoding: str = "latin1") -> bytes:
        # How Python 3 writes bytes for Python 2. No other codec: some of them unpack archives.
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"it encodes text as {encoding!r}")
        return text.encode("latin1")


class _FromBuffer:
    __slots__ = ()

    def __call__(
        self, values: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], order: str
    ) -> Any:
        # How arrays are written since Python 3.8.
        return np.frombuffer(values, dtype).reshape(shape, order="F" if order == "F" else "C")


ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _FromBuffer(),
    ("numpy._core.numeric", "_frombuffer"): _FromBuffer(),
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _Dtype(),
    ("_codecs", "encode"): _Encode(),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def read_pickle(path: Path) -> dict[str, Any]:
    """A dictionary of numbers, texts, lists and arrays: anything else is refused."""
    check_there(path)
    try:
        with open(path, "rb") as file:
            contents = _Unpickler(file, encoding="latin1").load()
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(
            f"{path} is not a CIFAR file: expected a pickled dictionary of numbers and numpy "
            f"arrays, but {error or type(error).__name__}. Nothing in it was run."
        ) from None
    if not isinstance(contents, dict):
        raise ValueError(f"{path} holds {type(contents).__name__}; expected a CIFAR dictionary.")
    return contents
