"""What an augmentation is, how it draws from the adapter's own randomness, and those that draw
nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

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
        copied = Augment(self.kind, self.draws.copy(), (self.low, self.high))
        copied.commit(int(self.calls))
        return copied


# Fixed ones, for exact tests: they draw nothing.
FIXED = (
    Augmentation("none", lambda images, _: images, random=False),
    Augmentation("flip", lambda images, _: images.flip(-1), random=False),
    Augmentation(  # odd calls flip, even ones do nothing
        "alternate", lambda images, before: images if before % 2 else images.flip(-1), random=False
    ),
)
