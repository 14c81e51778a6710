"""The corruption maker: fifteen corruptions at five severities, for batches of any images."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from holdfast.data.corrupt import blur, digital, noise, weather
from holdfast.data.corrupt.dice import Dice
from holdfast.data.corrupt.frost import textures
from holdfast.data.corrupt.tables import CORRUPTIONS as CORRUPTIONS
from holdfast.data.corrupt.tables import TABLES
from holdfast.data.corrupt.tables import Table as Table
from holdfast.data.images import check_range
from holdfast.util.whole import whole
from holdfast.util.words import listed, nearest

_MAKERS: dict[str, Callable[..., Tensor]] = {
    name: getattr(family, name)
    for name in CORRUPTIONS
    for family in (noise, blur, weather, digital)
    if hasattr(family, name)
}
# Those that pillow makes take bytes and give bytes.
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
    parameters = _parameters(corruption, severity, table)
    _check_images(images)
    places = _places(indices, len(images))
    extra = {"textures": textures(frost)} if corruption == "frost" else {}
    group = max(1, _GROUP_VALUES // images[0].numel()) if len(images) else 1
    read, write = (_as_bytes, _from_bytes) if corruption in _ON_BYTES else (_as_float, _from_float)
    out = torch.empty_like(images, memory_format=torch.contiguous_format)
    # Rounded to 16 bits by a caller's autocast, an image would become another one.
    with torch.autocast(images.device.type, enabled=False):
        for start in range(0, len(images), group):
            part = slice(start, start + group)
            dice = Dice(seed, corruption, severity, places[part])
            made = _MAKERS[corruption](read(images[part]), dice, *parameters, **extra)
            out[part] = write(made, images.dtype)
    return out


def _as_float(images: Tensor) -> Tensor:
    values = images.contiguous().float()
    return values.div_(255) if images.dtype == torch.uint8 else values


def _as_bytes(images: Tensor) -> Tensor:
    return images if images.dtype == torch.uint8 else images.float().mul(255).round_().byte()


def _from_bytes(images: Tensor, dtype: torch.dtype) -> Tensor:
    return images if dtype == torch.uint8 else images.float().div_(255)


def _from_float(images: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype != torch.uint8:
        return images.clamp(0, 1)
    # Cut off, not rounded, as the benchmark does; what is whole but for rounding stays.
    return images.mul(255).add_(1e-3).clamp_(0, 255).byte()


def _parameters(corruption: str, severity: int, table: str) -> tuple[float, ...]:
    if table not in TABLES:
        raise ValueError(f"table={table!r} is not one of {listed(TABLES)}.{nearest(table, TABLES)}")
    if corruption not in CORRUPTIONS:
        hint = nearest(corruption, CORRUPTIONS)
        raise ValueError(
            f"There is no corruption {corruption!r}.{hint} "
            f"There are: {listed(CORRUPTIONS, most=len(CORRUPTIONS))}."
        )
    return TABLES[table][corruption][severity - 1]


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
    places: list[int] = numbers.tolist()
    return places
