"""Strong views, drawn for each image: colour jitter, grayscale, blur; then cutouts, or a flip."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from holdfast.parts.augment.base import Augmentation
from holdfast.parts.augment.weak import flipped


def colours(side: int) -> list[nn.Module]:
    """Colour jitter, grayscale and blur, for images of at least this side."""
    from kornia import augmentation as K  # two seconds to import, and few need it

    # Three sigmas wide, odd, and no larger than the image.
    kernel = max(1, min(13, side - 1 - side % 2))
    return [
        K.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        K.RandomGrayscale(p=0.2),
        K.RandomGaussianBlur((kernel, kernel), (0.1, 2.0), p=0.5),
    ]


def strong(images: Tensor) -> Tensor:
    """Draws from torch's global generator; input and output in [0, 1]."""
    from kornia import augmentation as K

    chain = (
        *colours(min(images.shape[-2:])),
        K.RandomErasing(p=0.7, scale=(0.05, 0.2), ratio=(0.3, 3.3), value=0.5),
        K.RandomErasing(p=0.5, scale=(0.02, 0.2), ratio=(0.1, 6.0), value=0.5),
        K.RandomErasing(p=0.3, scale=(0.02, 0.2), ratio=(0.05, 8.0), value=0.5),
    )
    return through(chain, images)


def coloured(images: Tensor) -> Tensor:
    """The same without cutouts, and flipped or not."""
    return flipped(through(colours(min(images.shape[-2:])), images))


def through(chain: Iterable[nn.Module], images: Tensor) -> Tensor:
    """In the memory format that they have; kornia before 0.9 blurs contiguous images only."""
    out: Tensor = nn.Sequential(*chain)(images.contiguous())
    return torch.empty_like(images).copy_(out.clamp(0, 1))


# A draw for each image: colour jitter, grayscale, blur, three cutouts (after Liu et al. 2021,
# Unbiased Teacher; patches are filled with mid-grey).
STRONG = Augmentation("strong", lambda images, _: strong(images), colours=True, package="kornia")

# The same for each image, but flipped or not instead of cut (Chen et al. 2022, AdaContrast).
ADACONTRAST = Augmentation(
    "adacontrast", lambda images, _: coloured(images), colours=True, package="kornia"
)
