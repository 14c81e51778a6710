"""Augmentations of a batch of images, drawn from the adapter's own randomness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from holdfast.engine.checks import InputRange
from holdfast.engine.draws import Draws
from holdfast.parts.jitter import jitter
from holdfast.util.extras import require

Augmentation = Literal["strong", "cotta", "rotta", "none", "flip", "alternate"]


class Augment(nn.Module):
    """A new view of a batch each time; what it drew or counted is kept only on `commit`.

    `strong` draws for each image: colour jitter, grayscale, blur, three cutouts (after Liu et al.
    2021, Unbiased Teacher; patches are filled with mid-grey). `cotta` and `rotta` draw once for the
    whole batch: colour jitter, a small affine move, a slight blur, a flip, and noise (Wang et al.
    2022; Yuan et al. 2023 take the same chain with the same constants). The others are fixed, for
    exact tests: `none`, `flip` (left-right, always), `alternate` (odd calls flip, even ones do
    nothing).
    """

    calls: Tensor

    def __init__(self, name: Augmentation, draws: Draws, input_range: InputRange = (0.0, 1.0)):
        super().__init__()
        self.name = name
        self.draws = draws
        self.chain = CHAINS.get(name)
        if name == "strong":
            require("kornia", "augment=strong")
        if self.chain and input_range is None:
            raise ValueError(
                f"augment={name} changes colours, so it has to know where images lie: pass "
                "input_range=(low, high) instead of None, or choose augment=flip."
            )
        self.low, self.high = input_range or (0.0, 1.0)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def forward(self, images: Tensor, ahead: int = 0) -> Tensor:
        """`ahead`: views of this batch already taken, and not yet committed."""
        if self.chain is None:
            odd = self.name == "alternate" and (int(self.calls) + ahead) % 2 == 0
            return images.flip(-1) if odd or self.name == "flip" else images
        self.check(images)
        size = self.high - self.low
        with self.draws.scope():
            return self.chain(((images - self.low) / size).clamp(0, 1)) * size + self.low

    def check(self, images: Tensor) -> None:
        """Whether these can be augmented, to be asked before a view is wanted."""
        if self.chain is not None and (images.ndim != 4 or images.shape[1] != 3):
            raise ValueError(
                f"augment={self.name} works on RGB images (batch, 3, height, width), not on "
                f"{tuple(images.shape)}: choose augment=flip."
            )

    def commit(self, count: int = 1) -> None:
        self.calls += count


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


CHAINS: dict[str, Callable[[Tensor], Tensor]] = {"strong": strong, "cotta": jitter, "rotta": jitter}
