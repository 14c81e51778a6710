"""Augmentations of a batch of images, drawn from the adapter's own randomness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from holdfast.engine.checks import InputRange
from holdfast.engine.draws import Draws
from holdfast.parts.jitter import jitter
from holdfast.util.extras import require


@dataclass(frozen=True)
class Augmentation:
    """A way to make new views of images: a value that a method brings.

    make: is given a batch and the number of views made before; draws from torch's generators.
    colours: it takes RGB images in [0, 1] and gives such; else any images, as they are.
    random: whether it draws.
    package: what has to be installed for it, where adapting does not need that otherwise.
    """

    name: str
    make: Callable[[Tensor, int], Tensor]
    colours: bool = False
    random: bool = True
    package: str = ""


class Augment(nn.Module):
    """A new view of a batch each time; what it drew or counted stays only on `commit`."""

    calls: Tensor

    def __init__(self, kind: Augmentation, draws: Draws, input_range: InputRange = (0.0, 1.0)):
        super().__init__()
        self.kind = kind
        self.draws = draws
        if kind.package:
            require(kind.package, f"augment={kind.name}")
        if kind.colours and input_range is None:
            raise ValueError(
                f"augment={kind.name} changes colours, so it has to know where images lie: pass "
                "input_range=(low, high) instead of None, or choose augment=flip."
            )
        self.low, self.high = input_range or (0.0, 1.0)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def forward(self, images: Tensor, ahead: int = 0) -> Tensor:
        """`ahead`: views of this batch already taken, and not yet committed."""
        self.check(images)
        number, size = int(self.calls) + ahead, self.high - self.low
        if not self.kind.random:
            return self.kind.make(images, number)
        with self.draws.scope():
            if not self.kind.colours:
                return self.kind.make(images, number)
            scaled = ((images - self.low) / size).clamp(0, 1)
            return self.kind.make(scaled, number) * size + self.low

    def check(self, images: Tensor) -> None:
        """Whether these can be augmented, to be asked before a view is wanted."""
        if self.kind.colours and (images.ndim != 4 or images.shape[1] != 3):
            raise ValueError(
                f"augment={self.kind.name} works on RGB images (batch, 3, height, width), not on "
                f"{tuple(images.shape)}: choose augment=flip."
            )

    def commit(self, count: int = 1) -> None:
        self.calls += count

    def copy(self) -> Augment:
        """One that makes the views which this would make next."""
        other = Augment(self.kind, self.draws.copy(), (self.low, self.high))
        other.commit(int(self.calls))
        return other


def strong(images: Tensor) -> Tensor:
    """Draws from torch's global generator; input and output in [0, 1]."""
    from kornia import augmentation as K  # two seconds to import, and few need it

    side = min(images.shape[-2:])
    kernel = min(13, side - 1 - side % 2)  # three sigmas wide, odd, and smaller than the image
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


# Fixed ones, for exact tests: they draw nothing.
FIXED = (
    Augmentation("none", lambda images, _: images, random=False),
    Augmentation("flip", lambda images, _: images.flip(-1), random=False),
    Augmentation(  # odd calls flip, even ones do nothing
        "alternate", lambda images, before: images if before % 2 else images.flip(-1), random=False
    ),
)

# A draw for each image: colour jitter, grayscale, blur, three cutouts (after Liu et al. 2021,
# Unbiased Teacher; patches are filled with mid-grey).
STRONG = Augmentation("strong", lambda images, _: strong(images), colours=True, package="kornia")

# One draw for the whole batch: colour jitter, a small affine move, a slight blur, a flip, and noise
# (Wang et al. 2022; Yuan et al. 2023 take the same chain with the same constants).
COTTA = Augmentation("cotta", lambda images, _: jitter(images), colours=True)
ROTTA = Augmentation("rotta", lambda images, _: jitter(images), colours=True)

# Those that a setting can name in several methods.
AugmentationName = Literal["strong", "cotta", "rotta", "none", "flip", "alternate"]
AUGMENTATIONS = {kind.name: kind for kind in (STRONG, COTTA, ROTTA, *FIXED)}
