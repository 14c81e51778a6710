"""The parameters of each corruption, severity 1 to 5, as published for two benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Table = Literal["cifar", "imagenet"]
SEVERITIES = (1, 2, 3, 4, 5)

Parameters = tuple[float, ...]


def _each(*values: float) -> tuple[Parameters, ...]:
    return tuple((value,) for value in values)


def _with(last: float, *rows: Parameters) -> tuple[Parameters, ...]:
    return tuple((*row, last) for row in rows)


def _times(unit: float, *rows: Parameters) -> tuple[Parameters, ...]:
    return tuple(tuple(value * unit for value in row) for row in rows)


# The order is the benchmark's, and that of continual streams. Below each line what it lists.
CIFAR: Mapping[str, tuple[Parameters, ...]] = {
    "gaussian_noise": _each(0.04, 0.06, 0.08, 0.09, 0.10),  # sigma
    "shot_noise": _each(500, 250, 100, 75, 50),  # photons at white
    "impulse_noise": _each(0.01, 0.02, 0.03, 0.05, 0.07),  # share of values
    # radius of the disk, sigma that softens its edge
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    # sigma, reach, rounds
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),  # radius, sigma
    # factors from 1 to below this, by this
    "zoom_blur": _with(0.01, (1.06,), (1.11,), (1.16,), (1.21,), (1.26,)),
    # mean, spread, zoom, threshold; radius and sigma of the fall; how much of the scene stays
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    # weight of the image, of the ice; scale of the ice
    "frost": _with(0.2, (1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),  # amount, decay
    "brightness": _each(0.05, 0.1, 0.15, 0.2, 0.3),  # added to HSV's value
    "contrast": _each(0.75, 0.5, 0.4, 0.3, 0.15),  # what is left of it
    # strength and smoothness of shifts, skew; in parts of the image's side
    "elastic_transform": (
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    ),
    "pixelate": _each(0.95, 0.9, 0.85, 0.75, 0.65),  # scale
    "jpeg_compression": _each(80, 65, 58, 50, 40),  # quality
    "speckle_noise": _each(0.06, 0.1, 0.12, 0.16, 0.2),  # sigma at white
    "gaussian_blur": _each(0.4, 0.6, 0.7, 0.8, 1),  # sigma
    # mean, spread, sigma and threshold of drops; strength of water or sigma of mud; 1 for mud
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),  # HSV's S times, plus
}

IMAGENET: Mapping[str, tuple[Parameters, ...]] = {
    "gaussian_noise": _each(0.08, 0.12, 0.18, 0.26, 0.38),
    "shot_noise": _each(60, 25, 12, 5, 3),
    "impulse_noise": _each(0.03, 0.06, 0.09, 0.17, 0.27),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "frost": _with(1, (1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "brightness": _each(0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": _each(0.4, 0.3, 0.2, 0.1, 0.05),
    # Published in parts of 244 pixels, for images of 224.
    "elastic_transform": _times(
        244 / 224,
        (2, 0.7, 0.1),
        (2, 0.08, 0.2),
        (0.05, 0.01, 0.02),
        (0.07, 0.01, 0.02),
        (0.12, 0.01, 0.02),
    ),
    "pixelate": _each(0.6, 0.5, 0.4, 0.3, 0.25),
    "jpeg_compression": _each(25, 18, 15, 10, 7),
    "speckle_noise": _each(0.15, 0.2, 0.35, 0.45, 0.6),
    "gaussian_blur": _each(1, 2, 3, 4, 6),
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.6, 0),
        (0.65, 0.3, 3, 0.68, 0.6, 0),
        (0.65, 0.3, 2, 0.68, 0.5, 0),
        (0.65, 0.3, 1, 0.65, 1.5, 1),
        (0.67, 0.4, 1, 0.65, 1.5, 1),
    ),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
}

# Kept apart for choosing settings: tests are on the others.
HOLDOUT = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
CORRUPTIONS: tuple[str, ...] = tuple(name for name in CIFAR if name not in HOLDOUT)
EVERY = (*CORRUPTIONS, *HOLDOUT)
TABLES: Mapping[str, Mapping[str, tuple[Parameters, ...]]] = {"cifar": CIFAR, "imagenet": IMAGENET}
