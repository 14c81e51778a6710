"""Windows of ice for the frost corruption: holdfast's own drawings, or a folder of photographs."""

from __future__ import annotations

import math
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

OWN = Path(__file__).parent / "textures"
# The benchmark's photographs; its code names a sixth, and never draws it.
ORIGINALS = tuple(f"frost{i}" for i in range(1, 6))


class Textures:
    """Pictures of ice, and larger or smaller copies of them, the latest of which are kept."""

    def __init__(self, folder: Path) -> None:
        self.pictures = [_read(path) for path in _files(folder)]
        # Of two sizes: images of ever new ones would fill the memory.
        self._copy = lru_cache(maxsize=2 * len(self.pictures))(self._make_copy)

    def fitting(self, scale: float, height: int, width: int) -> list[Tensor]:
        """The pictures scaled, or as much larger as it takes to cut an image out of them."""
        fitting = []
        for number, picture in enumerate(self.pictures):
            _, tall, wide = picture.shape
            # One pixel more than the image leaves a choice of where to cut.
            fitting.append(self._copy(number, max(scale, (height + 1) / tall, (width + 1) / wide)))
        return fitting

    def _make_copy(self, number: int, scale: float) -> Tensor:
        return _scaled(self.pictures[number], scale)


def textures(folder: str | os.PathLike[str] | None) -> Textures:
    """From `folder`, or holdfast's own."""
    return _textures(OWN if folder is None else Path(folder))


@lru_cache(maxsize=2)
def _textures(folder: Path) -> Textures:
    return Textures(folder)


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise ValueError(
            f"frost={str(folder)!r} is not a folder: give the one that holds the benchmark's "
            f"frost1.png … frost5.jpg, or leave frost out for holdfast's own drawings."
        )
    paths = [
        path
        for name in ORIGINALS
        for path in sorted(folder.glob(f"{name}.*"))
        if path.suffix.lower() in (".png", ".jpg", ".jpeg")
    ]
    missing = [name for name in ORIGINALS if name not in {path.stem for path in paths}]
    if missing:
        raise ValueError(
            f"frost={str(folder)!r} has no {missing[0]}.png or {missing[0]}.jpg: all of frost1 … "
            f"frost5 are needed. Leave frost out for holdfast's own drawings."
        )
    return paths


def _read(path: Path) -> Tensor:
    with Image.open(path, formats=("JPEG", "PNG")) as file:
        picture = np.array(file.convert("RGB"))
    return torch.from_numpy(picture).permute(2, 0, 1).float() / 255


def _scaled(picture: Tensor, scale: float) -> Tensor:
    if scale == 1:
        return picture
    size = [math.ceil(side * scale) for side in picture.shape[1:]]
    # Not smoothed before it shrinks: the benchmark's ice is as sharp on small images.
    scaled = F.interpolate(picture[None], size=size, mode="bilinear", align_corners=False)
    return scaled[0]
