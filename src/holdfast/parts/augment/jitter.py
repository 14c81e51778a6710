"""CoTTA's view, one draw for the whole batch: colours, a small move, a slight blur, a flip; and
ROID's, which is without the blur."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.parts.augment.base import Augmentation


def brightness(images: Tensor, factor: float) -> Tensor:
    return images * factor


def contrast(images: Tensor, factor: float) -> Tensor:
    return torch.lerp(grey(images).mean((-2, -1), keepdim=True), images, factor)


def saturation(images: Tensor, factor: float) -> Tensor:
    return torch.lerp(grey(images), images, factor)


def hue(images: Tensor, turns: float) -> Tensor:
    """Turns the hue of HSV; saturation and value stay."""
    red, green, blue = images.unbind(1)
    low, high = images.amin(1), images.amax(1)
    chroma = high - low
    sixths = torch.where(
        high == red,
        green - blue,
        torch.where(high == green, blue - red + 2 * chroma, red - green + 4 * chroma),
    )
    sixths = sixths / chroma.clamp(min=torch.finfo(chroma.dtype).tiny) + 6 * turns
    sixths -= 6 * torch.floor(sixths / 6)
    shares = (sixths - 3).abs() - 1, 2 - (sixths - 2).abs(), 2 - (sixths - 4).abs()
    return torch.stack([low + chroma * share.clamp(0, 1) for share in shares], 1)


def gamma(images: Tensor, power: float) -> Tensor:
    return images.clamp(1e-8, 1) ** power


def grey(images: Tensor) -> Tensor:
    red, green, blue = images.unbind(1)
    return (0.2989 * red + 0.587 * green + 0.114 * blue)[:, None]


# RoTTA's constants are CoTTA's, so one table serves both.
Colour = Callable[[Tensor, float], Tensor]
COLOURS: dict[Colour, tuple[float, float]] = {
    brightness: (0.6, 1.4),
    contrast: (0.7, 1.3),
    saturation: (0.5, 1.5),
    hue: (-0.06, 0.06),
    gamma: (0.7, 1.3),
}
DEGREES = (-15.0, 15.0)
SHIFT = (-1 / 16, 1 / 16)
SCALE = (0.9, 1.1)
SIGMA = (0.001, 0.5)
REACH = 2  # of the blur, which is five pixels wide
FLIP = 0.5
NOISE = 0.005

Padding = Literal["edge", "reflect"]


def jitter(
    images: Tensor, *, padding: Padding = "edge", blurs: bool = True, noise: float = NOISE
) -> Tensor:
    """Of CoTTA and RoTTA: one draw for the whole batch from torch's global generators, only the
    noise by pixel; input and output in [0, 1].

    It is plain torch: kornia's hue alone takes about as long as all of this, its grey is not that
    of the reference (torchvision), and its import takes two seconds.
    """
    view = Jitter.draw(padding, blurs)(images)
    if noise:
        view += noise * torch.randn(view.shape, dtype=view.dtype, device=view.device)
    return torch.empty_like(images).copy_(view.clamp_(0, 1))  # keeps the memory format


@dataclass(frozen=True)
class Jitter:
    """All that a view draws but its noise; called on images, it makes that view of them.

    colours: operations and their amounts, in order.
    shift: to the right and down, as a share of the padded side.
    sigma: of the blur; None: there is none.
    padding: what lies around the image while it is moved, its edge or its reflection.
    """

    colours: tuple[tuple[Colour, float], ...]
    degrees: float
    shift: tuple[float, float]
    scale: float
    sigma: float | None
    flip: bool
    padding: Padding = "edge"

    @classmethod
    def draw(cls, padding: Padding = "edge", blurs: bool = True) -> Jitter:
        """Draws on the CPU, wherever the images are."""
        shares = iter(torch.rand(11, dtype=torch.float64, device="cpu").tolist())

        def within(bounds: tuple[float, float]) -> float:
            low, high = bounds
            return low + (high - low) * float(next(shares))

        colours = [(colour, within(bounds)) for colour, bounds in COLOURS.items()]
        degrees, shift = within(DEGREES), (within(SHIFT), within(SHIFT))
        scale, sigma = within(SCALE), within(SIGMA)
        return cls(
            colours=tuple(colours[i] for i in torch.randperm(len(colours), device="cpu").tolist()),
            degrees=degrees,
            shift=shift,
            scale=scale,
            sigma=sigma if blurs else None,
            flip=within((0.0, 1.0)) < FLIP,
            padding=padding,
        )

    def __call__(self, images: Tensor) -> Tensor:
        view = images.clamp(0, 1).contiguous()
        for colour, amount in self.colours:
            view = colour(view, amount).clamp_(0, 1)
        moved = self.move(view)
        return moved if self.sigma is None else blur(moved, self.sigma)

    def move(self, images: Tensor) -> Tensor:
        """Pad by half a side, affine about the centre, crop, flip: one sampling.

        The crop keeps a margin for a blur. Where the affine looks beyond the padding it finds 0.
        """
        height, width = images.shape[-2:]
        full_height, full_width = padded(height), padded(width)
        margin = 0 if self.sigma is None else REACH
        x = offsets(width, margin, like=images)
        y = offsets(height, margin, like=images)[:, None]
        if self.flip:
            x = -x
        x = x - round(self.shift[0] * full_width)  # whole pixels, as the reference
        y = y - round(self.shift[1] * full_height)
        turn = math.radians(self.degrees)
        cos, sin = math.cos(turn) / self.scale, math.sin(turn) / self.scale
        x, y = cos * x + sin * y, cos * y - sin * x
        end_x, end_y = (full_width - 1) / 2, (full_height - 1) / 2
        # A reflection does not repeat the edge: it is about the centres of the last pixels.
        edge = self.padding == "edge"
        across, down = (width, height) if edge else (max(width - 1, 1), max(height - 1, 1))
        coordinates = x.clamp(-end_x, end_x) * (2 / across), y.clamp(-end_y, end_y) * (2 / down)
        grid = torch.stack(coordinates, -1)
        grid = grid.expand(len(images), -1, -1, -1)
        beyond = "border" if edge else "reflection"
        view = F.grid_sample(images, grid, padding_mode=beyond, align_corners=not edge)
        # Between the last padded pixel and the next, bilinear values fall to 0.
        inside_x = (end_x + 1 - x.abs()).clamp(0, 1)
        inside_y = (end_y + 1 - y.abs()).clamp(0, 1)
        return view.mul_(inside_x * inside_y)


def padded(side: int) -> int:
    return side + 2 * (side // 2)


def offsets(side: int, margin: int, like: Tensor) -> Tensor:
    """Pixels of the crop and its margin, from the centre, reflected where the padded image ends."""
    end = (padded(side) - 1) / 2
    steps = torch.arange(-margin, side + margin, dtype=like.dtype, device=like.device)
    steps -= (side - 1) / 2
    return torch.copysign((end - (end - steps.abs()).abs()).clamp(min=0), steps)


def blur(images: Tensor, sigma: float) -> Tensor:
    """Gaussian blur that leaves out the margin."""
    weights = [math.exp(-0.5 * (step / sigma) ** 2) for step in range(-REACH, REACH + 1)]
    for dim in (-1, -2):
        side = images.shape[dim] - 2 * REACH
        parts = [images.narrow(dim, start, side) for start in range(len(weights))]
        images = torch.zeros_like(parts[0])
        for part, weight in zip(parts, weights, strict=True):
            images.add_(part, alpha=weight / sum(weights))
    return images


# One draw for the whole batch: colour jitter, a small affine move, a slight blur, a flip, and noise
# (Wang et al. 2022; Yuan et al. 2023 take the same chain with the same constants).
COTTA = Augmentation("cotta", lambda images, _: jitter(images), colours=True)
ROTTA = Augmentation("rotta", lambda images, _: jitter(images), colours=True)
# The same move over reflected images, without blur and noise (Marsden et al. 2024).
ROID = Augmentation(
    "roid",
    lambda images, _: jitter(images, padding="reflect", blurs=False, noise=0.0),
    colours=True,
)
