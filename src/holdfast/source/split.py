"""Two kinds of image in one batch, such as intruders among a camera's own images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.engine.moments import together
from holdfast.source.point import Point, read_off

# Fewer images are never parted, and a group has to have two of them and a share of the batch.
FEWEST = 8
SMALLEST_SHARE = 1 / 16
# From so many starts are two groups looked for: what images vary most in need not be their kind.
STARTS = 3
ROUNDS = 10

# Where a variance has no room below it; and the deviation of a group of equal points.
FLOOR = 1e-3
NARROWEST = 1e-12


@dataclass(frozen=True, eq=False)
class Split:
    """Where a batch's images lie at the first batch norm layer, and whether they are of two kinds.

    center, deviation: of the source's images, each described by `describe`; weight: of channels.
    All of it in float64 and on the CPU. limits: how far apart two means of source batches of 8,
    16, … images lie, random, label-skewed or sorted ones, as logarithms.
    """

    center: Tensor
    deviation: Tensor
    weight: Tensor
    limits: Sequence[float] = ()

    def place(self, mean: Tensor, var: Tensor) -> Tensor:
        """Each image among the source's, (…, images, 2 channels)."""
        found = describe(mean.detach().cpu().double(), var.detach().cpu().double())
        return (found - self.center) / self.deviation * self.weight.sqrt().repeat(2)

    def groups(self, first: Point, mean: Tensor, var: Tensor) -> tuple[Tensor, ...]:
        """Positions of the images of each kind, on the CPU, that of the first image before the
        other; empty if all are of one kind. first: what is known of that layer.

        A batch that lies where the source's do is not parted: each of two groups of alike images
        is further from the source than all of them together.
        """
        images = len(mean)
        if images < FEWEST:
            return ()
        center, spread = (each.to(first.mean) for each in together(mean, var))
        if float(first.beyond(center, spread, first.unexplained_limit(images))) <= 1:
            return ()
        place = self.place(mean, var)
        second, ratio = two_means(place)
        if not ratio > self.limit(images):
            return ()
        second = by_width(place, second)
        second = second != second[0]
        return (~second).nonzero().flatten(), second.nonzero().flatten()

    def limit(self, images: int) -> float:
        return read_off(self.limits, images, first=FEWEST)


def describe(mean: Tensor, var: Tensor) -> Tensor:
    """An image by the mean and the spread of its channels."""
    return torch.cat([mean, 0.5 * (var + FLOOR).log()], -1)


def two_means(z: Tensor) -> tuple[Tensor, Tensor]:
    """Of points (…, n, size): which belong to the second of two groups, and the squared distance
    of their means over the mean squared distance of a point to its own, both along the line through
    the means: how far points scatter across it says nothing of a gap. 0: a group is too small.

    They start from the two sides of each of the first principal components; the widest gap counts.
    """
    second = _components(z - z.mean(-2, keepdim=True)) > 0
    one, other = _means(z, ~second), _means(z, second)
    for _ in range(ROUNDS):
        # On which side of the plane half-way between both means.
        apart = other - one
        middle = ((one + other) * apart).sum(-1) / 2
        before, second = second, z @ apart.mT > middle[..., None, :]
        if torch.equal(before, second):
            break
        one, other = _means(z, ~second), _means(z, second)
    apart = other - one
    # Where on that line the mean of each point's own group lies.
    ends = [(mean * apart).sum(-1)[..., None, :] for mean in (one, other)]
    own = torch.where(second, ends[1], ends[0])
    gap = (apart**2).sum(-1)
    ratio = gap**2 / ((z @ apart.mT - own) ** 2).mean(-2)
    ratio, best = ratio.masked_fill(_too_small(second), 0).max(-1, keepdim=True)
    return second.take_along_dim(best[..., None, :], -1).squeeze(-1), ratio.squeeze(-1)


def by_width(z: Tensor, second: Tensor) -> Tensor:
    """Of points (n, size) in two groups: which belong to the second, by how wide each group is.

    Half-way between two means lies the tail of a wide group beside a narrow one, such as a camera's
    own images beside noise. On the line through the means each point goes to the group of which it
    is likelier, as if these were normal.
    """
    for _ in range(ROUNDS):
        means = z[~second].mean(0), z[second].mean(0)
        along = z @ (means[1] - means[0])
        unlikely = []
        for members in (~second, second):
            deviation, center = torch.std_mean(along[members], correction=0)
            deviation = deviation.clamp_min(NARROWEST)
            unlikely.append(((along - center) / deviation) ** 2 + 2 * deviation.log())
        before, second = second, unlikely[1] < unlikely[0]
        if bool(_too_small(second[:, None])):
            return before
        if torch.equal(before, second):
            break
    return second


def _too_small(second: Tensor) -> Tensor:
    """Whether one of two groups is, of members (…, n, groupings)."""
    images, sizes = second.shape[-2], second.sum(-2)
    return torch.minimum(sizes, images - sizes) < max(2, SMALLEST_SHARE * images)


def _components(z: Tensor) -> Tensor:
    """The score of each point on the directions in which they vary most, (…, n, STARTS)."""
    narrow = z.shape[-2] < z.shape[-1]
    _, vectors = torch.linalg.eigh(z @ z.mT if narrow else z.mT @ z)
    largest: Tensor = vectors[..., -STARTS:].flip(-1)
    return largest if narrow else z @ largest


def _means(z: Tensor, members: Tensor) -> Tensor:
    """Of groups (…, n, groups), (…, groups, size); NaN for one without points, which then never
    has any."""
    share = members.mT.to(z)
    return share @ z / share.sum(-1, keepdim=True)
