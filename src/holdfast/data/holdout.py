"""Labelled images under drift, made of a person's own, to calibrate estimates of accuracy on.

Only the four hold-out corruptions are used, which no test shows: what is calibrated on them has
seen none of the drift that it is judged by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from holdfast.data.corrupt.corruptions import HOLDOUT, corrupt
from holdfast.data.pools import table_for
from holdfast.engine.checks import check_images
from holdfast.source.loaders import CLEAN, images_and_labels, in_its_own_order
from holdfast.util.settings import whole

BATCH = 64

OTHERWISE = (
    "Where images are of another kind, give batches (images, labels, kind of drift) of your own in "
    "place of drifted(loader), some of the kind 'clean', others such as 'night'; or leave it out."
)


class Drifted:
    """What `drifted` gives: the same batches whenever it is gone through."""

    def __init__(self, loader: Iterable[Any], severities: Sequence[int], images: int, seed: int):
        if isinstance(loader, Iterator):
            raise ValueError(
                f"drifted goes through the loader again each time, but {type(loader).__name__} is "
                "a one-shot iterator: give a DataLoader or a list of batches."
            )
        self.loader = loader
        self.severities = [whole(severity, "severity", 1, 5) for severity in severities]
        self.images = whole(images, "images", 1)
        self.seed = whole(seed, "seed")

    @property
    def domains(self) -> list[str]:
        return [CLEAN, *(f"{name}-{severity}" for name, severity in self._layers())]

    def _layers(self) -> list[tuple[str, int]]:
        return [(name, severity) for name in HOLDOUT for severity in self.severities]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, str]]:
        samples, count = self._samples(), self.images
        for number, layer in enumerate([None, *self._layers()]):
            taken = list(islice(samples, count))
            if len(taken) < count:  # the loader ends here, and begins again
                count = len(taken) if number == 0 else count
                samples = self._samples()
                taken += islice(samples, count - len(taken))
            if not taken:
                raise ValueError("drifted: the loader is empty.")
            images, labels = (torch.stack(tensors) for tensors in zip(*taken, strict=True))
            if layer is not None:
                indices = range(number * count, (number + 1) * count)
                table = table_for(images)
                try:
                    images = corrupt(images, *layer, table=table, indices=indices, seed=self.seed)
                except ValueError as error:
                    raise ValueError(f"drifted: {error} {OTHERWISE}") from None
            # Even parts: one image by itself has no batch statistics.
            parts = math.ceil(count / BATCH)
            domain = self.domains[number]
            for part, known in zip(
                images.tensor_split(parts), labels.tensor_split(parts), strict=True
            ):
                yield part, known, domain

    def _samples(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The loader's images one by one, each time in the same order."""
        shape: torch.Size | None = None
        for index, batch in enumerate(in_its_own_order(self.loader)):
            images, labels = images_and_labels(batch)
            try:
                check_images(images, (0, 1), convolutional=True)
            except ValueError as error:
                # input_range is nothing that drifted takes: what it makes are images in [0, 1].
                told = str(error).partition(" If your model takes other values")[0]
                raise ValueError(
                    f"drifted, batch {index} of the loader: {told} {OTHERWISE}"
                ) from None
            if not isinstance(labels, Tensor) or labels.shape != images.shape[:1]:
                given = tuple(labels.shape) if isinstance(labels, Tensor) else type(labels).__name__
                raise ValueError(
                    f"drifted, batch {index} of the loader: expected (images, labels), a label for "
                    f"each of {len(images)} images; the labels are {given}."
                )
            shape = images.shape[1:] if shape is None else shape
            if images.shape[1:] != shape:
                raise ValueError(
                    f"drifted, batch {index} of the loader: images of shape "
                    f"{tuple(images.shape[1:])}, others of {tuple(shape)}. Give images of one size."
                )
            yield from zip(images, labels, strict=True)


def drifted(
    loader: Iterable[Any],
    *,
    severities: Sequence[int] = (1, 3, 5),
    images: int = 256,
    seed: int = 0,
) -> Drifted:
    """Batches `(images, labels, domain)` of a loader's own images: clean ones first, then under
    each hold-out corruption at each of the `severities`. A domain is such as "clean" or
    "speckle_noise-3".

    The loader yields (images, labels), float in [0, 1]. Each domain shows at most `images` of them,
    in batches of up to 64, and domains show different ones as far as there are enough: the loader
    is gone through once, and again from its start where it is short. They are taken as they come,
    so that a loader sorted by class has to be shuffled. The parameters are CIFAR-C's for sides up
    to 64 pixels, else ImageNet-C's. The same seed gives the same batches, and nothing is drawn from
    torch's own generator.
    """
    return Drifted(loader, severities, images, seed)
