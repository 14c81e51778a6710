"""Augmentations of a batch of images, as values, one kind of view a file."""

from __future__ import annotations

from typing import Literal

from holdfast.parts.augment.augmix import AUGMIX
from holdfast.parts.augment.base import FIXED as FIXED
from holdfast.parts.augment.base import Augment as Augment
from holdfast.parts.augment.base import Augmentation as Augmentation
from holdfast.parts.augment.destroy import DESTROYED as DESTROYED
from holdfast.parts.augment.destroy import occlude as occlude
from holdfast.parts.augment.jitter import COTTA, ROID, ROTTA
from holdfast.parts.augment.strong import ADACONTRAST, STRONG
from holdfast.parts.augment.weak import WEAK

# Augmentations that a setting of several methods can name.
AugmentationName = Literal[
    "strong",
    "cotta",
    "rotta",
    "roid",
    "augmix",
    "adacontrast",
    "weak",
    "none",
    "flip",
    "alternate",
]
AUGMENTATIONS = {
    kind.name: kind
    for kind in (
        STRONG,
        COTTA,
        ROTTA,
        ROID,
        AUGMIX,
        ADACONTRAST,
        WEAK,
        *FIXED,
    )
}
