"""Sets of images as the options of a run name them, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from holdfast.bench.options import DataOptions
from holdfast.data.corrupt.corruptions import CORRUPTIONS, EVERY
from holdfast.data.images import Images
from holdfast.data.readers.layouts import CLEAN
from holdfast.data.readers.sets import DataSet, open_clean, open_data

SOURCE_BATCH = 64


def open_alike(data: DataOptions, name: str, **options: Any) -> Images:
    """A clean set that is read like the data."""
    if data.size is not None:
        options["size"] = data.size
    return open_clean(name, data.root, **options)


def open_shown(shown: Sequence[str], data: DataOptions) -> DataSet:
    """The benchmark's corruptions and whatever else a stream shows; where the set lacks something,
    what the stream shows of it, with clean images if there are any."""
    options = {field: value for field, value in vars(data).items() if value is not None}
    name = options.pop("name")
    needed = [shift for shift in EVERY if shift in shown] or CORRUPTIONS
    try:
        return open_data(name, corruptions=tuple(dict.fromkeys((*CORRUPTIONS, *needed))), **options)
    except FileNotFoundError:
        for clean in (True, CLEAN in shown):
            with suppress(FileNotFoundError):
                return open_data(name, corruptions=needed, clean=clean, **options)
        raise


def check_size(data: DataSet, size: int | None) -> None:
    """Only images in folders are resized: for others, another size is an error."""
    *_, height, width = data.domains[-1].dataset.image(0).shape
    if size not in (None, height):
        raise ValueError(
            f"--size {size} would not be used, since {data.name} has images of {width}×{height}: "
            "leave it out. It is for images in folders."
        )


def check_labels_known(images: Images, classes: int, option: str) -> None:
    highest = int(images.labels.max())
    if highest >= classes:
        raise ValueError(
            f"{option} has a label {highest}, and the model knows {classes} classes: number the "
            "labels as in its training, from 0."
        )


def check_not_the_source(validation: str, source: str, option: str) -> None:
    """By hashes of what they hold."""
    if validation == source:
        raise ValueError(
            f"{option} has the images of the source: leave it out, or give others, which the model "
            "was not trained on."
        )


def shuffled(
    images: Images, limit: int | None = None, batch: int = SOURCE_BATCH
) -> DataLoader[tuple[Tensor, int]]:
    """Batches in one fixed order that does not follow the classes, over some of the images."""
    order = np.random.default_rng(0).permutation(len(images))[:limit]
    return DataLoader(Subset(images, order.tolist()), batch_size=batch)
