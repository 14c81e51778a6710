"""Weather: snow, frost, fog, brightness."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from holdfast.data.corrupt.blur import smear, zoom
from holdfast.data.corrupt.dice import Dice

# Windows of ice: holdfast's own drawings.
OWN = Path(__file__).parent / "textures"
# The benchmark's photographs; its code names a sixth, and never draws it.
ORIGINALS = tuple(f"frost{i}" for i in range(1, 6))


def snow(
    images: Tensor,
    dice: Dice,
    mean: float,
    spread: float,
    factor: float,
    least: float,
    radius: int,
    sigma: float,
    keep: float,
) -> Tensor:
    """Flakes are large specks of noise that fall, over a scene that whitens."""
    noise = dice.normal(1, *images.shape[-2:]).to(images.device)
    flakes = zoom(noise.mul_(spread).add_(mean), factor)
    flakes = flakes.where(flakes >= least, 0).clamp_(0, 1)
    flakes = smear(flakes, radius, sigma, dice.uniform(1)[:, 0] * 45 - 90)
    white = torch.maximum(images, gray(images) * 1.5 + 0.5)
    return images.lerp(white, 1 - keep) + flakes + flakes.flip(-2, -1)


def gray(images: Tensor) -> Tensor:
    if images.shape[1] == 1:
        return images
    weights = images.new_tensor([0.299, 0.587, 0.114])
    return (images * weights.view(3, 1, 1)).sum(1, keepdim=True)


def frost(
    images: Tensor, dice: Dice, clear: float, weight: float, scale: float, folder: Path
) -> Tensor:
    """Part of an icy window over each image."""
    channels, height, width = images.shape[1:]
    windows = []
    for number, (_, tall, wide) in enumerate(picture.shape for picture in _ice(folder)):
        # As much larger as it takes; one pixel more leaves a choice of where to cut.
        fitting = max(scale, (height + 1) / tall, (width + 1) / wide)
        windows.append(scaled_ice(folder, number, fitting))
    chosen = dice.whole(len(windows), 1)[:, 0].tolist()
    corners = dice.uniform(2).add_(1).div_(2).tolist()
    crops = []
    for window, (down, across) in zip([windows[i] for i in chosen], corners, strict=True):
        y = int(down * (window.shape[1] - height))
        x = int(across * (window.shape[2] - width))
        crops.append(window[:, y : y + height, x : x + width])
    ice = torch.stack(crops).to(images.device)
    return images * clear + (ice if channels == 3 else gray(ice)) * weight


@lru_cache(maxsize=10)  # five of two sizes: images of ever new ones would fill the memory
def scaled_ice(folder: Path, number: int, scale: float) -> Tensor:
    picture = _ice(folder)[number]
    if scale == 1:
        return picture
    size = [math.ceil(side * scale) for side in picture.shape[1:]]
    # Not smoothed before it shrinks: the benchmark's ice is as sharp on small images.
    scaled = F.interpolate(picture[None], size=size, mode="bilinear", align_corners=False)
    return scaled[0]


@lru_cache(maxsize=2)
def _ice(folder: Path) -> list[Tensor]:
    pictures = []
    for path in _frost_files(folder):
        with Image.open(path, formats=("JPEG", "PNG")) as file:
            picture = torch.from_numpy(np.array(file.convert("RGB")))
        pictures.append(picture.permute(2, 0, 1).float() / 255)
    return pictures


def _frost_files(folder: Path) -> list[Path]:
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


def fog(images: Tensor, dice: Dice, amount: float, decay: float) -> Tensor:
    height, width = images.shape[-2:]
    clouds = _plasma(dice, max(height, width), decay)[:, None, :height, :width]
    brightest = images.amax((1, 2, 3), keepdim=True)
    thick = clouds.to(images.device).mul(amount).add(images)
    return thick * (brightest / (brightest + amount))


def _plasma(dice: Dice, side: int, decay: float) -> Tensor:
    """Clouds by the diamond-square algorithm on a torus, each in [0, 1].

    Every point of the map is the mean of four neighbours on a coarser grid, plus noise of its own
    that shrinks with the grid.
    """
    side = 1 << (side - 1).bit_length()
    points = dice.uniform(side, side)  # the noise; means are added, coarsest grid first
    points[:, 0, 0] = 0
    step, noise = side, 100.0
    while step >= 2:
        half = step // 2
        corners = points[:, ::step, ::step]
        centres = points[:, half::step, half::step]
        pairs = corners + corners.roll(-1, 1)
        _settle(centres, pairs + pairs.roll(-1, 2), noise)
        above = centres + centres.roll(1, 1) + corners + corners.roll(-1, 2)
        beside = centres + centres.roll(1, 2) + corners + corners.roll(-1, 1)
        _settle(points[:, ::step, half::step], above, noise)
        _settle(points[:, half::step, ::step], beside, noise)
        step, noise = half, noise / decay
    low, high = points.amin((1, 2), keepdim=True), points.amax((1, 2), keepdim=True)
    return points.sub_(low).div_(high - low)


def _settle(points: Tensor, four: Tensor, noise: float) -> None:
    points.mul_(noise**2).add_(four, alpha=0.25)  # squared in the benchmark's code too


def brightness(images: Tensor, dice: Dice, more: float) -> Tensor:
    """Adds to the value of HSV, which leaves hue and saturation: a scaling of each pixel."""
    value = images.amax(1, keepdim=True)
    scaled = images * ((value + more).clamp_(max=1) / value)
    return scaled.where(value > 0, more)
