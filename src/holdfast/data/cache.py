"""A cache on disk for images that are made as they are read, such as corrupted ones; and a short
name for what a data set holds, by which the cache and the record of a run go."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from holdfast.data.corrupt.corruptions import CORRUPTIONS
from holdfast.data.glyphs import Glyphs
from holdfast.data.images import Array, Images, Lazy, as_bytes
from holdfast.data.pools import Corrupted, Indices, Layer, Made, Pool
from holdfast.data.readers.layouts import CLEAN
from holdfast.data.readers.sets import DataSet, Domain
from holdfast.util.threads import threads

# Larger images take longer to adapt to than to make, and much room to keep.
LARGEST_SIDE = 64


class CachedImages(Images):
    """Each image is made when it is first asked for, and read from a file of bytes afterwards.

    Several processes may share the file: what two of them write into one place is the same, and
    an image is marked as there only after it was written.
    """

    def __init__(self, made: Images, path: Path):
        self.made = made
        self.labels, self.classes, self.names = made.labels, made.classes, made.names
        shape = (len(made), *made.image(0).shape)
        self.pixels = Lazy(partial(_open, path, shape))
        self.there = Lazy(partial(_open, path.with_suffix(".there"), shape[:1]))

    def raw(self, indices: Sequence[int]) -> Tensor:
        chosen = np.fromiter(indices, np.int64)
        pixels, made = self.pixels.values, self.there.values
        missing = np.unique(chosen[made[chosen] == 0])
        if len(missing):
            pixels[missing] = as_bytes(self.made.raw(missing.tolist())).numpy()
            made[missing] = 1
        return torch.from_numpy(pixels[chosen])

    def file_name(self, index: int) -> str | None:
        return self.made.file_name(index)

    def at_severity(self, severity: int) -> Images:
        return self.made.at_severity(severity)


def _open(path: Path, shape: tuple[int, ...]) -> Array:
    """A file of bytes of that shape, mapped into memory; zeros where nothing was written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size = int(np.prod(shape))
    with open(path, "ab") as file:
        if file.tell() < size:
            file.truncate(size)
    return np.memmap(path, np.uint8, "r+", shape=shape)


@dataclass(frozen=True)
class CachedSet(DataSet):
    """A data set with a cache; images at severities of their own are made anew."""

    made: DataSet

    def at(self, *layers: Layer) -> Pool:
        return self.made.at(*layers)


def cached(images: Images, path: Path) -> Images:
    """The images with a cache; as they are, if they are large or lie in files already."""
    made = isinstance(images, Corrupted | Glyphs)
    if not made or max(images.image(0).shape[1:]) > LARGEST_SIDE:
        return images
    return CachedImages(images, path)


def cached_set(data: DataSet, folder: Path) -> DataSet:
    """The data set, with a cache of its images below a folder."""
    domains = tuple(
        Domain(domain.name, cached(domain.dataset, folder / f"{domain.name}.images"))
        for domain in data.domains
    )
    return CachedSet(data.name, data.classes, domains, data)


SAMPLE = 16


def fingerprint(data: DataSet | Made | Mapping[str, Pool] | Pool) -> str:
    """SHA-256 of a data set, or of one set of images: the domains' names, every label, and the
    pixels of 16 images of each domain, evenly spaced.

    A sample, since ImageNet-C takes hours to read: sets that differ in other images alone have
    the same fingerprint. Where files lie, what they are called and in which order the domains
    come does not count. Images are read at the severity that the set was opened with. Those that
    are corrupted as they are read may differ between kinds of machine, by rounding; and by the
    number of threads, so that the sample is read with one.
    """
    digest = hashlib.sha256()
    for name, pool in sorted(_domains(data).items()):
        labels = np.asarray(pool.labels).astype("<i8")
        digest.update(f"{name!r} {len(labels)} ".encode())
        digest.update(labels.tobytes())
        with threads(1):
            sample = pool.images(_evenly(len(labels)).tolist()).to("cpu", torch.float32)
        digest.update(f"{tuple(sample.shape)} ".encode())
        digest.update(sample.numpy().astype("<f4").tobytes())
    return digest.hexdigest()


def _evenly(count: int) -> Indices:
    """Indices from the first to the last, evenly spaced."""
    sample = min(count, SAMPLE)
    return np.arange(sample) * (count - 1) // max(sample - 1, 1)


def _domains(data: DataSet | Made | Mapping[str, Pool] | Pool) -> Mapping[str, Pool]:
    if isinstance(data, DataSet):
        return {domain.name: domain.dataset for domain in data.domains}
    if isinstance(data, Made):
        return {name: data[name] for name in (*CORRUPTIONS, CLEAN)}
    if isinstance(data, Mapping):
        return data
    if isinstance(data, Pool):
        return {"": data}
    raise ValueError(
        f"{type(data).__name__} does not say which domains it has: give a dictionary of them, "
        "from names to images."
    )
