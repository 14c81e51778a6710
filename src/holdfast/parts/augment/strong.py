"""A strong view, drawn for each image: colour jitter, grayscale, blur, cutouts."""

from __future__ import annotations

from torch import Tensor, nn

from holdfast.parts.augment.base import Augmentation


def strong(images: Tensor) -> Tensor:
    """Draws from torch's global generator; input and output in [0, 1]."""
    from kornia import augmentation as K  # two seconds to import, and few need it

    side = min(images.shape[-2:])
    # Three sigmas wide, odd, and no larger than the image.
    kernel = max(1, min(13, side - 1 - side % 2))
    chain = nn.Sequential(
        K.ColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8),
        K.RandomGrayscale(p=0.2),
        K.RandomGaussianBlur((kernel, kernel), (0.1, 2.0), p=0.5),
        K.RandomErasing(p=0.7, scale=(0.05, 0.2), ratio=(0.3, 3.3), value=0.5),
        K.RandomErasing(p=0.5, scale=(0.02, 0.2), ratio=(0.1, 6.0), value=0.5),
        K.RandomErasing(p=0.3, scale=(0.02, 0.2), ratio=(0.05, 8.0), value=0.5),
    )
    out: Tensor = chain(images)
    return out.clamp(0, 1)


# A draw for each image: colour jitter, grayscale, blur, three cutouts (after Liu et al. 2021,
# Unbiased Teacher; patches are filled with mid-grey).
STRONG = Augmentation("strong", lambda images, _: strong(images), colours=True, package="kornia")
