"""A place in the network: how source images look there, and what labels do to a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

EPSILON = 1e-5
LEAST = 1e-30

# Labels explain at most so many directions, and one less than there are classes. One in which
# classes vary by this share of what they do in these on average counts half, one in which they vary
# far more nearly whole.
DIRECTIONS = 8
HALF = 0.1


class Point(nn.Module):
    """How source images are distributed there, and how far batches of them are from that.

    mean, var, weight: of each channel. by_labels: directions in which classes differ, each as long
    as the root of how far it counts, (directions, 2 channels). limits: of the drift of 1, 2, 4, …
    512 source images, as logarithms; unexplained_limits: of what labels do not explain of it, where
    images may also be sorted by label. rows: how long its input is on axis 0 for each image.
    """

    mean: Tensor
    var: Tensor
    weight: Tensor
    by_labels: Tensor
    units: Tensor

    def __init__(
        self,
        moments: Tensor,
        by_labels: Tensor | None = None,
        limits: Sequence[float] = (),
        unexplained_limits: Sequence[float] = (),
        rows: int = 1,
    ):
        super().__init__()
        for name, tensor in zip(("mean", "var", "weight"), moments, strict=True):
            self.register_buffer(name, tensor)
        none = moments.new_zeros(0, 2 * moments.shape[1])
        self.register_buffer("by_labels", none if by_labels is None else by_labels)
        # How long a step of the mean is, and one of the logarithm of the variance.
        units = torch.cat([1 / (self.var + EPSILON), torch.full_like(self.var, 0.5)])
        self.register_buffer("units", (units * self.weight.repeat(2)).sqrt(), persistent=False)
        self.limits, self.unexplained_limits = tuple(limits), tuple(unexplained_limits)
        self.rows = rows

    def place(self, mean: Tensor, var: Tensor) -> Tensor:
        """Where batches of these means and variances, (…, channels), lie from the source:
        (…, 2 channels), as long as the root of their drift."""
        spread = ((var + EPSILON) / (self.var + EPSILON)).log()
        return torch.cat([mean - self.mean, spread], -1) * self.units

    def drift(self, mean: Tensor, var: Tensor) -> Tensor:
        """How far they are from the source."""
        return (self.place(mean, var) ** 2).sum(-1)

    def unexplained(self, mean: Tensor, var: Tensor) -> Tensor:
        """Their drift without what the labels of a batch could do: images of a few classes lie
        where these do, drift mostly elsewhere."""
        place = self.place(mean, var)
        # By hand, since a matrix product would be in half precision under autocast, and what is
        # left may be a hundredth of what is taken away.
        along = (place.unsqueeze(-2) * self.by_labels).sum(-1)
        return ((place**2).sum(-1) - (along**2).sum(-1)).clamp_min(0)

    def limit(self, images: int) -> float:
        """The drift that batches of so many source images stay below, nearly always."""
        return read_off(self.limits, images)

    def unexplained_limit(self, images: int) -> float:
        """What remains of it unexplained, also where one label follows the other."""
        return read_off(self.unexplained_limits, images)

    def beyond(self, mean: Tensor, var: Tensor, limit: float | Tensor) -> Tensor:
        """What labels do not explain of the drift, over the limit of so many images."""
        return self.unexplained(mean, var) / limit


def label_directions(by_class: Tensor) -> Tensor:
    """The directions in which the places of classes, (classes, size), vary most, each as long as
    the root of the share by which it is explained by labels."""
    centred = by_class - by_class.mean(0)
    narrow = len(centred) < centred.shape[1]
    squares, vectors = torch.linalg.eigh(centred @ centred.mT if narrow else centred.mT @ centred)
    count = min(DIRECTIONS, len(by_class) - 1)  # the rest have no width
    squares, vectors = (each.flip(-1)[..., :count] for each in (squares, vectors))
    if narrow:  # by class: the widest first, so that those of no width bend no other
        vectors = torch.linalg.qr(centred.mT @ vectors).Q
    squares = squares.clamp_min(0)
    share = squares / (squares + HALF * squares.mean()).clamp_min(LEAST)
    found: Tensor = (vectors * share.sqrt()).mT
    return found


def read_off(logarithms: Sequence[float], images: int, first: int = 1) -> float:
    """Of a curve given at first, 2 first, 4 first, … images: its value for so many, by straight
    lines in log-log, and beyond its end as there."""
    last = len(logarithms) - 1
    place = min(max(math.log2(images / first), 0), last)
    before = min(int(place), last - 1)
    low, high = logarithms[before : before + 2]
    return math.exp(low + (high - low) * (place - before))
