"""Augmentations of a batch of images, as values, one kind of view a file."""

from __future__ import annotations

from typing import Literal

from holdfast.parts.augment.base import FIXED as FIXED
from holdfast.parts.augment.base import Augment as Augment
from holdfast.parts.augment.base import Augmentation as Augmentation
from holdfast.parts.augment.destroy import DESTROYED as DESTROYED
from holdfast.parts.augment.destroy import occlude as occlude
from holdfast.parts.augment.jitter import COTTA, ROTTA
from holdfast.parts.augment.strong import STRONG

# Those that a setting can name in several methods.
AugmentationName = Literal["strong", "cotta", "rotta", "none", "flip", "alternate"]
AUGMENTATIONS = {
    kind.name: kind
    for kind in (
        STRONG,
        COTTA,
        ROTTA,
        *FIXED,
    )
}
