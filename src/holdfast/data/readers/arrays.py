"""Images in arrays: .npy files, and .npz files with `images` and `labels`.

A .npy file is mapped: only what is looked at is read. So is an .npz file that was written without
compression (`np.savez`). A compressed one (`np.savez_compressed`) has no place for a single image:
each process that reads it unpacks its images once and keeps them.
"""

from __future__ import annotations

import copy
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Literal

import numpy as np
from torch import Tensor

from holdfast.data.images import Array, Images, Lazy, as_tensor, check_labels, check_range
from holdfast.util.words import listed, shortened

SHAPES = "(images, height, width, channels) or (images, channels, height, width)"
CHANNELS = (1, 3)
# What a damaged archive may raise.
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    struct.error,
    RuntimeError,
)


@dataclass(frozen=True)
class Header:
    """What an array file says of itself."""

    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    offset: int | None
    """Where its values begin in the file; nowhere, if they are compressed."""


class ArrayImages(Images):
    """Rows of an array, one for each label; with a severity, that one of five such parts."""

    def __init__(
        self,
        rows: Lazy,
        labels: Array,
        classes: int | None = None,
        *,
        severity: int | None = None,
        channels_last: bool = True,
        path: Path | None = None,
    ):
        self.rows = rows
        self.labels = labels
        self.classes = int(labels.max()) + 1 if classes is None else classes
        self.severity = severity
        self.channels_last = channels_last
        self.path = path

    @property
    def start(self) -> int:
        return 0 if self.severity is None else (self.severity - 1) * len(self)

    def at_severity(self, severity: int) -> Images:
        if self.severity is None:
            return super().at_severity(severity)
        copied = copy.copy(self)
        copied.severity = severity
        return copied

    def raw(self, indices: Sequence[int]) -> Tensor:
        array = self.rows.values[self.start + np.fromiter(indices, np.int64)]
        images = as_tensor(array.transpose(0, 3, 1, 2) if self.channels_last else array)
        if images.is_floating_point():
            check_range(images, self.path or "The images")
        return images


def read_npz(path: Path, classes: int | None = None) -> ArrayImages:
    """Images uint8, or float in [0, 1], channels last or first, and their labels."""
    check_there(path)
    images = read_header(path, "images")
    labels = check_labels(read_array(path, "labels"), path, classes)
    channels_last = check_images(path, images)
    if len(labels) != images.shape[0]:
        raise ValueError(f"{path} has {images.shape[0]} images, but {len(labels)} labels.")
    rows = Lazy(partial(read_array, path, "images"))
    return ArrayImages(rows, labels, classes, channels_last=channels_last, path=path)


def check_images(path: Path, header: Header) -> bool:
    """Whether channels come last; an error where these are no images."""
    shape = header.shape
    last, first = len(shape) == 4 and shape[3] in CHANNELS, len(shape) == 4 and shape[1] in CHANNELS
    if not (last or first) or not (header.dtype == np.uint8 or header.dtype.kind == "f"):
        raise ValueError(
            f"{path}: images are {header.dtype} of shape {shape}; expected uint8, or float in "
            f"[0, 1], of shape {SHAPES}, with 1 or 3 channels."
        )
    return last


def read_header(path: Path, member: str | None = None) -> Header:
    """Type and shape of an array, without its values; a file that is cut short is an error."""
    check_there(path)
    try:
        if member is None:
            with open(path, "rb") as file:
                return _parse(file, path, path.stat().st_size)
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            if member not in names:
                raise ValueError(
                    f"{path} has no array {member!r}; it has "
                    f"{shortened(listed(names) or 'nothing')}: write it with np.savez(path, "
                    "images=…, labels=…)."
                )
            info = archive.infolist()[names.index(member)]
            with archive.open(info) as values:
                header = _parse(values, path, info.file_size)
            if info.compress_type != zipfile.ZIP_STORED or header.offset is None:
                return replace(header, offset=None)
            return replace(header, offset=_data_begin(file, info) + header.offset)
    except DAMAGE as error:
        kind = "an .npz file with the arrays 'images' and 'labels'" if member else "a .npy file"
        raise ValueError(
            f"{path} is not {kind}, or is cut short or damaged ({shortened(str(error))}): get or "
            "make it again."
        ) from None


def read_array(path: Path, member: str | None = None) -> Array:
    """The array, mapped where it can be."""
    header = read_header(path, member)
    if header.offset is not None:
        return np.memmap(path, header.dtype, "r", header.offset, header.shape, header.order)
    try:
        with np.load(path, allow_pickle=False) as archive:
            values: Array = archive[str(member)]
            return values
    except (*DAMAGE, ValueError, MemoryError) as error:
        raise ValueError(
            f"{path} is damaged ({shortened(str(error))}): get or make it again."
        ) from None


def has_array(path: Path, member: str) -> bool:
    """Whether an .npz file has an array of this name."""
    with zipfile.ZipFile(path) as archive:
        return f"{member}.npy" in archive.namelist()


def check_there(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")


def _parse(stream: IO[bytes], path: Path, size: int) -> Header:
    try:
        version = np.lib.format.read_magic(stream)
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, fortran, dtype = read(stream)
    except Exception as error:  # numpy reads a header as Python, and fails as that does
        raise ValueError(
            f"{path} is not a .npy file, or is cut short or damaged ({shortened(str(error))}): get "
            "or make it again."
        ) from None
    if dtype.hasobject:
        raise ValueError(f"{path} holds Python objects, which could run code; expected numbers.")
    offset = stream.tell()
    expected = offset + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if size < expected:
        raise ValueError(
            f"{path} is cut short: {size} bytes, but {dtype} of shape {shape} takes {expected}. "
            "Get or make it again."
        )
    return Header(dtype, tuple(shape), "F" if fortran else "C", offset)


def _data_begin(file: IO[bytes], info: zipfile.ZipInfo) -> int:
    """Where a member's bytes begin: behind its local header, whose length stands inside it."""
    file.seek(info.header_offset)
    name, extra = struct.unpack("<26xHH", file.read(30))
    return info.header_offset + 30 + int(name) + int(extra)
