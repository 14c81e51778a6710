"""What every reader gives: labelled images, read one by one, in the process that asks for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from holdfast.engine.checks import ROUNDING

Array = np.ndarray[Any, np.dtype[Any]]


class Images(Dataset[tuple[Tensor, int]], ABC):
    """Images of one domain with their labels: `(image, label)`, float32 CHW in [0, 1] and int.

    Labels are known without reading an image, so that a stream can be laid out beforehand.
    """

    labels: Array
    """Whole numbers, one for each image."""
    classes: int
    names: tuple[str, ...] | None = None
    """Those of the classes, where they are known."""

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def raw(self, indices: Sequence[int]) -> Tensor:
        """A new batch, (batch, channels, height, width), as it is stored: uint8, or float32 in
        [0, 1]."""

    def images(self, indices: Iterable[int]) -> Tensor:
        """A batch, float32 in [0, 1], (batch, channels, height, width)."""
        return as_floats(self.raw(list(indices)))

    def image(self, index: int) -> Tensor:
        """One image, (channels, height, width)."""
        return self.images([index])[0]

    def file_name(self, index: int) -> str | None:
        """`class/file` where images are files, else nothing."""
        return None

    def at_severity(self, severity: int) -> Images:
        """The same images, corrupted the same way, at another severity."""
        raise ValueError("These images have one severity only.")

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        index = self._checked(index)
        return self.image(index), int(self.labels[index])

    def __getitems__(self, indices: list[int]) -> list[tuple[Tensor, int]]:
        """What a DataLoader calls for a batch."""
        indices = [self._checked(index) for index in indices]
        labels = self.labels[indices].tolist()
        return list(zip(self.images(indices), labels, strict=True))

    def _checked(self, index: int) -> int:
        if not -len(self) <= index < len(self):
            raise IndexError(f"There is no image {index}: there are {len(self)}.")
        return int(index) % len(self)


class Lazy:
    """An array that each process opens for itself when it first needs it: what goes to a worker
    is how to open it, never its contents."""

    def __init__(self, open_array: Callable[[], Array]):
        self._open = open_array
        self._values: Array | None = None

    @property
    def values(self) -> Array:
        if self._values is None:
            self._values = self._open()
        return self._values

    def __getstate__(self) -> dict[str, Any]:
        return {"_open": self._open, "_values": None}


class Joined(Images):
    """Several as one, one after the other."""

    def __init__(self, parts: Sequence[Images]):
        self.parts = list(parts)
        self.labels = np.concatenate([part.labels for part in parts])
        self.classes = max(part.classes for part in parts)
        self._ends = np.cumsum([len(part) for part in parts])

    def raw(self, indices: Sequence[int]) -> Tensor:
        images = [part.raw([at]) for part, at in map(self._find, indices)]
        alike = len({image.dtype for image in images}) == 1
        return torch.cat(images if alike else [as_floats(image) for image in images])

    def file_name(self, index: int) -> str | None:
        part, index = self._find(index)
        return part.file_name(index)

    def _find(self, index: int) -> tuple[Images, int]:
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self.parts[number], index - int(self._ends[number - 1]) if number else index


def as_tensor(values: Array) -> Tensor:
    """A copy, since the file may be mapped and read-only: uint8, or float32."""
    dtype = np.uint8 if values.dtype == np.uint8 else np.float32
    return torch.from_numpy(values.astype(dtype, order="C", subok=False))


def as_floats(images: Tensor) -> Tensor:
    """Bytes divided by 255; floats as they are."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images


def as_bytes(images: Tensor) -> Tensor:
    """Images in [0, 1] as uint8; exact where they came from bytes, and bytes as they are."""
    if images.dtype == torch.uint8:
        return images
    check_range(images, "The images")
    return images.mul(255).round_().clamp_(0, 255).to(torch.uint8)


def check_range(images: Tensor, name: str | Path) -> None:
    """An error unless images are in [0, 1] but for rounding: the rest would be clipped silently."""
    if images.numel():
        low, high = (float(value) for value in images.aminmax())
        if not (low >= -ROUNDING and high <= 1 + ROUNDING):
            raise ValueError(
                f"{name}: found floats from {low:g} to {high:g}; expected [0, 1]. Divide bytes by "
                "255, and leave normalisation to the model (holdfast.normalized)."
            )


def check_labels(values: Array, path: Path, classes: int | None = None) -> Array:
    """Labels as int64, or an error that names the file."""
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: labels are {values.dtype} of shape {values.shape}; expected whole numbers "
            "of shape (images,)."
        )
    if len(values) == 0:
        raise ValueError(f"{path} holds no images.")
    low, high = int(values.min()), int(values.max())
    if low < 0 or (classes is not None and high >= classes):
        top = "" if classes is None else f" to {classes - 1}"
        raise ValueError(f"{path}: labels go from {low} to {high}; expected 0{top}.")
    return values.astype(np.int64)
