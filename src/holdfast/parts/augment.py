"""Augmentations of a batch of images, drawn from the adapter's own randomness."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.engine.checks import InputRange
from holdfast.engine.draws import Draws
from holdfast.util.imports import require


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


def jitter(images: Tensor) -> Tensor:
    """Of CoTTA and RoTTA: one draw for the whole batch from torch's global generators, only the
    noise by pixel; input and output in [0, 1].

    It is plain torch: kornia's hue alone takes about as long as all of this, its grey is not that
    of the reference (torchvision), and its import takes two seconds.
    """
    view = Jitter.draw()(images)
    view += NOISE * torch.randn(view.shape, dtype=view.dtype, device=view.device)
    return torch.empty_like(images).copy_(view.clamp_(0, 1))  # keeps the memory format


@dataclass(frozen=True)
class Jitter:
    """All that a view draws but its noise; called on images, it makes that view of them.

    colours: operations and their amounts, in order.
    shift: to the right and down, as a share of the padded side.
    """

    colours: tuple[tuple[Colour, float], ...]
    degrees: float
    shift: tuple[float, float]
    scale: float
    sigma: float
    flip: bool

    @classmethod
    def draw(cls) -> Jitter:
        """Draws on the CPU, wherever the images are."""
        shares = iter(torch.rand(11, dtype=torch.float64, device="cpu").tolist())

        def within(bounds: tuple[float, float]) -> float:
            low, high = bounds
            return low + (high - low) * float(next(shares))

        colours = [(colour, within(bounds)) for colour, bounds in COLOURS.items()]
        return cls(
            colours=tuple(colours[i] for i in torch.randperm(len(colours), device="cpu").tolist()),
            degrees=within(DEGREES),
            shift=(within(SHIFT), within(SHIFT)),
            scale=within(SCALE),
            sigma=within(SIGMA),
            flip=within((0.0, 1.0)) < FLIP,
        )

    def __call__(self, images: Tensor) -> Tensor:
        view = images.clamp(0, 1).contiguous()
        for colour, amount in self.colours:
            view = colour(view, amount).clamp_(0, 1)
        return blur(self.move(view), self.sigma)

    def move(self, images: Tensor) -> Tensor:
        """Pad by half a side with the edge, affine about the centre, crop, flip: one sampling.

        The crop keeps a margin for the blur. Where the affine looks beyond the padding it finds 0.
        """
        height, width = images.shape[-2:]
        full_height, full_width = padded(height), padded(width)
        x, y = offsets(width, like=images), offsets(height, like=images)[:, None]
        if self.flip:
            x = -x
        x = x - round(self.shift[0] * full_width)  # whole pixels, as the reference
        y = y - round(self.shift[1] * full_height)
        turn = math.radians(self.degrees)
        cos, sin = math.cos(turn) / self.scale, math.sin(turn) / self.scale
        x, y = cos * x + sin * y, cos * y - sin * x
        grid = torch.stack((x * (2 / width), y * (2 / height)), -1)
        grid = grid.expand(len(images), -1, -1, -1)
        view = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
        # Between the last padded pixel and the next, bilinear values fall to 0.
        inside_x = ((full_width + 1) / 2 - x.abs()).clamp(0, 1)
        inside_y = ((full_height + 1) / 2 - y.abs()).clamp(0, 1)
        return view.mul_(inside_x * inside_y)


def padded(side: int) -> int:
    return side + 2 * (side // 2)


def offsets(side: int, like: Tensor) -> Tensor:
    """Pixels of the crop and its margin, from the centre, reflected where the padded image ends."""
    end = (padded(side) - 1) / 2
    steps = torch.arange(-REACH, side + REACH, dtype=like.dtype, device=like.device)
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
