"""Labelled source images, read once and parted: one part tells of the source, the other is shown
as if it were the stream to come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.data.images import Array, Images, as_bytes
from holdfast.engine.checks import check_images
from holdfast.source.loaders import check_labels, images_and_labels, in_its_own_order
from holdfast.util.files import tensor_hash

# How many images are read by default; more where there are many classes.
IMAGES = 4000
# How many images of a class are enough; and how many it takes for a class to be in both parts.
PER_CLASS = 4
LEAST_PER_CLASS = 2
# In each part: a stream of one batch says nothing of what adapting does.
BATCHES = 2
# A loader that is sorted by class shows few of them at first.
LEAST_SHARE = 0.5


class Held(Images):
    """Images in memory, as bytes; some of them share that memory."""

    def __init__(self, pixels: Tensor, labels: Array, classes: int, places: Array | None = None):
        self.pixels = pixels
        self.labels = labels
        self.classes = classes
        self.places = np.arange(len(labels)) if places is None else places

    def raw(self, indices: Sequence[int]) -> Tensor:
        return self.pixels[torch.from_numpy(self.places[list(indices)])]

    def subset(self, indices: Array) -> Held:
        return Held(self.pixels, self.labels[indices], self.classes, self.places[indices])

    @property
    def hash(self) -> str:
        pixels = self.raw(range(len(self)))
        return tensor_hash({"pixels": pixels, "labels": torch.from_numpy(self.labels)})


@dataclass(frozen=True)
class Parts:
    """What is known of the source is made of `source`, and `shown` comes as the stream."""

    source: Held
    shown: Held


def read(loader: Iterable[Any], classes: int, limit: int | None, batch: int) -> Held:
    """The first `limit` images of a loader, in bytes, or an error that says what is wrong."""
    limit = max(IMAGES, PER_CLASS * classes) if limit is None else limit
    pixels: list[Tensor] = []
    labels: list[Tensor] = []
    remaining = limit
    for index, given in enumerate(in_its_own_order(loader)):
        images, known = images_and_labels(given)
        try:
            check_images(images, (0, 1), convolutional=True)
            if known is None:
                raise ValueError(
                    "there are no labels. A rehearsal counts right answers: give labelled images "
                    "of the source, as batches of (images, labels)."
                )
            known = check_labels(known, len(images), classes)
            if pixels and images.shape[1:] != pixels[0].shape[1:]:
                raise ValueError(
                    f"images of shape {tuple(images.shape[1:])}, others of "
                    f"{tuple(pixels[0].shape[1:])}. Give images of one size."
                )
            pixels.append(as_bytes(images[:remaining].detach().cpu()))
        except ValueError as error:
            raise ValueError(f"rehearse, batch {index} of the loader: {error}") from None
        labels.append(known[:remaining])
        remaining -= len(pixels[-1])
        if remaining <= 0:
            break
    if not pixels:
        raise ValueError("rehearse: the loader is empty; expected batches of (images, labels).")
    labelled = Held(torch.cat(pixels), torch.cat(labels).numpy(), classes)
    _check_enough(labelled, batch, limit)
    return labelled


def _check_enough(images: Held, batch: int, limit: int) -> None:
    classes, count = len(np.unique(images.labels)), len(images)
    if classes < 2:
        raise ValueError(
            f"rehearse: all {count} images are of class {images.labels[0]}; expected images of all "
            "classes. Shuffle the loader."
        )
    if classes < LEAST_SHARE * images.classes:
        more = " or raise images=…" if count == limit else ""
        raise ValueError(
            f"rehearse: the first {count} images show {classes} of the model's {images.classes} "
            f"classes; expected most of them. Shuffle the loader{more}."
        )
    least = max(2 * BATCHES * batch, LEAST_PER_CLASS * classes)
    if count < least:
        raise ValueError(
            f"rehearse: found {count} images; expected {least} or more: {LEAST_PER_CLASS} for each "
            f"of {classes} classes, and {BATCHES} batches of {batch} for the source and for the "
            f"stream. Give more images{' (images=…)' if count == limit else ''}, or a smaller "
            "batch=…."
        )


def part(images: Held, seed: int) -> Parts:
    """Every other image of each class, in an order that does not follow the classes."""
    rng = np.random.default_rng([seed, len(images)])
    order = rng.permutation(len(images))
    by_class = order[np.argsort(images.labels[order], kind="stable")]
    return Parts(
        source=images.subset(rng.permutation(by_class[1::2])),
        shown=images.subset(rng.permutation(by_class[::2])),
    )
