"""A short name for what a data set holds, for the record of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import torch

from holdfast.data.corrupt.corruptions import CORRUPTIONS
from holdfast.data.pools import Indices, Made, Pool
from holdfast.data.readers.layouts import CLEAN
from holdfast.data.readers.sets import DataSet

SAMPLE = 16


def fingerprint(data: DataSet | Made | Mapping[str, Pool] | Pool) -> str:
    """SHA-256 of a data set, or of one set of images: the domains' names, every label, and the
    pixels of 16 images of each domain, evenly spaced.

    A sample, since ImageNet-C takes hours to read: sets that differ in other images alone have
    the same fingerprint. Where files lie, what they are called and in which order the domains
    come does not count. Images are read at the severity that the set was opened with. Those that
    are corrupted as they are read may differ between kinds of machine, by rounding.
    """
    digest = hashlib.sha256()
    for name, pool in sorted(_domains(data).items()):
        labels = np.asarray(pool.labels).astype("<i8")
        digest.update(f"{name!r} {len(labels)} ".encode())
        digest.update(labels.tobytes())
        sample = pool.images(_evenly(len(labels)).tolist()).to("cpu", torch.float32)
        digest.update(f"{tuple(sample.shape)} ".encode())
        digest.update(sample.numpy().astype("<f4").tobytes())
    return digest.hexdigest()


def _evenly(count: int) -> Indices:
    """Places from the first to the last."""
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
