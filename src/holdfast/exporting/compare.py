"""How far the logits of an exported file are from those of the module that it was made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

# Single images and odd batches show whether the batch dimension is free.
SMALL_BATCHES = (1, 3)


@dataclass(frozen=True)
class Difference:
    """largest: between two logits. scale: the largest logit, at least 1. labels: share of images
    whose label differs. images: how many there were."""

    largest: float
    scale: float
    labels: float
    images: int


def split(images: Tensor, batch: int) -> tuple[Tensor, ...]:
    """Batches of different sizes, the last one of up to `batch` images."""
    least = sum(SMALL_BATCHES) + 2
    if len(images) < least:
        raise ValueError(
            f"{len(images)} images are too few to try batches of several sizes: give {least} or "
            f"more, best {sum(SMALL_BATCHES) + batch}."
        )
    sizes = [min(size, batch) for size in (*SMALL_BATCHES, len(images) - sum(SMALL_BATCHES))]
    ends = accumulate(sizes)
    return tuple(images[end - size : end] for size, end in zip(sizes, ends, strict=True))


def compare(
    run: Callable[[Tensor], Tensor], batches: Sequence[Tensor], expected: Sequence[Tensor]
) -> Difference:
    with torch.no_grad():
        found = [run(images).detach().cpu() for images in batches]
    shapes = [tuple(one.shape) for one in found]
    right = [tuple(one.shape) for one in expected]
    if shapes != right:
        raise ValueError(f"it gives logits of shapes {shapes}, and the module of {right}")
    gave, wanted = torch.cat(found), torch.cat([one.cpu() for one in expected])
    return Difference(
        largest=float((gave.double() - wanted.double()).abs().max()),
        scale=max(1.0, float(wanted.double().abs().max())),
        labels=float((gave.argmax(1) != wanted.argmax(1)).double().mean()),
        images=len(wanted),
    )
