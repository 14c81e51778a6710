"""The corruption maker: fifteen corruptions of the benchmark and its four for choosing settings, at
five severities, for batches of any images."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from holdfast.data.corrupt import blur, digital, noise, spatter, weather
from holdfast.data.corrupt.dice import Dice
from holdfast.data.corrupt.tables import CORRUPTIONS as CORRUPTIONS
from holdfast.data.corrupt.tables import EVERY as EVERY
from holdfast.data.corrupt.tables import HOLDOUT as HOLDOUT
from holdfast.data.corrupt.tables import TABLES
from holdfast.data.corrupt.tables import Table as Table
from holdfast.data.corrupt.weather import OWN
from holdfast.data.images import as_bytes, as_floats, check_range
from holdfast.util.settings import whole
from holdfast.util.words import listed, nearest

_MAKERS: dict[str, Callable[..., Tensor]] = {
    name: getattr(family, name)
    for name in EVERY
    for family in (noise, blur, weather, digital, spatter)
    if hasattr(family, name)
}
# These are made by pillow, and take and give bytes.
_ON_BYTES = ("pixelate", "jpeg_compression")
_LEAST_SIDE = 16
# Images are worked on in groups whose intermediate values stay in the processor's cache.
_GROUP_VALUES = 2**19


@torch.no_grad()
def corrupt(
    images: Tensor,
    corruption: str,
    severity: int = 5,
    *,
    table: Table,
    indices: Tensor | Sequence[int] | None = None,
    seed: int = 0,
    frost: str | os.PathLike[str] | None = None,
) -> Tensor:
    """Corrupted copies of `images` (batch, 1 or 3, height, width; uint8, or float in [0, 1]).

    What an image becomes depends on itself, `seed`, the corruption, the severity and its entry in
    `indices` (0, 1, … if left out), never on the batch around it. `table` says whose parameters to
    take: CIFAR-C's, meant for 32×32, or ImageNet-C's, meant for 224×224. `frost` is a folder with
    the benchmark's photographs of ice; without it holdfast's own drawings serve.
    """
    severity, seed = whole(severity, "severity", 1, 5), whole(seed, "seed")
    if table not in TABLES:
        raise ValueError(f"table={table!r} is not one of {listed(TABLES)}.{nearest(table, TABLES)}")
    check_corruption(corruption)
    parameters = TABLES[table][corruption][severity - 1]
    _check_images(images)
    numbers = _places(indices, len(images))
    extra = {"folder": OWN if frost is None else Path(frost)} if corruption == "frost" else {}
    group = max(1, _GROUP_VALUES // images[0].numel()) if len(images) else 1
    out = torch.empty_like(images, memory_format=torch.contiguous_format)
    # Rounded to 16 bits by a caller's autocast, an image would become another one.
    with torch.autocast(images.device.type, enabled=False):
        for start in range(0, len(images), group):
            part = slice(start, start + group)
            dice = Dice(seed, corruption, severity, numbers[part])
            floats = as_floats(images[part].contiguous()).float()
            if corruption in _ON_BYTES:
                made = _MAKERS[corruption](as_bytes(floats), dice, *parameters)
                out[part] = made if images.dtype == torch.uint8 else as_floats(made)
            else:
                made = _MAKERS[corruption](floats, dice, *parameters, **extra)
                out[part] = _clipped(made, images.dtype)
    return out


def _clipped(images: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype != torch.uint8:
        return images.clamp(0, 1)
    # Cut off, not rounded, as the benchmark does; what is whole but for rounding stays.
    return images.mul(255).add_(1e-3).clamp_(0, 255).byte()


def check_corruption(name: str) -> None:
    if name not in EVERY:
        raise ValueError(
            f"There is no corruption {name!r}.{nearest(name, EVERY)} There are: "
            f"{listed(EVERY, 99)}."
        )


def _check_images(images: Tensor) -> None:
    if not isinstance(images, Tensor):
        raise ValueError(f"images have to be a torch tensor, not {type(images).__name__}.")
    shape = tuple(images.shape)
    if images.ndim != 4 or shape[1] not in (1, 3):
        last = images.ndim == 4 and shape[3] in (1, 3)
        hint = " Move the channels: images.permute(0, 3, 1, 2)." if last else ""
        raise ValueError(f"images have to be (batch, 1 or 3, height, width), not {shape}.{hint}")
    if min(shape[2:]) < _LEAST_SIDE:
        raise ValueError(
            f"images of {shape[2]}×{shape[3]} are too small to corrupt: each side needs "
            f"{_LEAST_SIDE} pixels or more."
        )
    if images.is_floating_point():
        check_range(images, "The images")
    elif images.dtype != torch.uint8:
        raise ValueError(f"images have to be uint8, or float in [0, 1], not {images.dtype}.")


def _places(indices: Tensor | Sequence[int] | None, count: int) -> list[int]:
    if indices is None:
        return list(range(count))
    numbers = torch.as_tensor(indices) if len(indices) else torch.empty(0, dtype=torch.int64)
    if numbers.is_floating_point() or numbers.dtype == torch.bool or numbers.shape != (count,):
        raise ValueError(
            f"indices have to be {count} whole numbers, one for each image, not "
            f"{numbers.dtype} of shape {tuple(numbers.shape)}."
        )
    values: list[int] = numbers.tolist()
    return values
