"""Statistics that follow the evidence, for several streams in one forward: each by its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.apart import Apart
from holdfast.engine.mixed import GatedApart
from holdfast.engine.moments import Groups, image_moments
from holdfast.engine.steady import WHOLE, Forward, SteadyStatistics
from holdfast.source.point import Point
from holdfast.source.split import FEWEST


class Kinds(NamedTuple):
    """Images that are normalised together: a stream's, or those of one of two kinds in it. whose:
    of each group its stream, share: and its share in that stream's images; sizes: of each stream,
    those of two kinds, if there are two."""

    groups: Groups
    whose: Tensor
    share: Tensor
    sizes: list[tuple[int, ...]]


class SteadyApart(Apart):
    """`SteadyNorm` for groups of images at once: a row of its tensors is a group."""

    def __init__(
        self,
        by: SteadyStatistics,
        streams: Groups,
        parameters: Mapping[str, nn.Parameter],
        trained: Mapping[str, Tensor],
    ):
        super().__init__(by.layers, streams, parameters, trained)
        self.by, self.look = by, Forward(by.look.split)
        self.kinds = self._part([()] * len(streams.sizes))
        # By layer, for each time that it ran: how far it believed each group, the drift over its
        # limit, and how far from the source's values it went, behind each other.
        self.seen: dict[str, list[Tensor]] = {name: [] for name in by.norms}

    def normalise(self, name: str, layer: _BatchNorm, x: Tensor) -> Tensor:
        if name not in self.by.norms:
            raise ValueError(f"The norm layer {name!r} never ran on the source's images.")
        norm = self.by.norms[name]
        use, point = norm.begin(self.look)
        if norm.first and use == 0:
            self.kinds = self._tell_apart(point, x)
        groups = self.kinds.groups
        mean, var, centred = groups.moments(x)
        ratio = point.beyond(mean, var, self._limits(point).to(mean))
        alpha = self.look.believe(WHOLE, ratio)[:, None]
        weight, bias = (self._of_groups(each) for each in (layer.weight, layer.bias))
        moved = norm.moved(alpha, mean, var, weight, bias)
        self.seen[name].append(torch.cat([alpha, ratio[:, None], *moved], 1).detach())
        scale, shift = (each.expand_as(mean) for each in norm.affine(moved))
        # How far the groups' means lie above those that they are normalised by.
        offset, spread = mean - norm.mean - moved[0], norm.var + moved[1]
        out: Tensor = GatedApart.apply(  # type: ignore[no-untyped-call]
            x, scale, shift, centred, offset, spread, alpha, groups, norm.eps
        )
        return out

    def _limits(self, point: Point) -> Tensor:
        known = {size: point.unexplained_limit(size) for size in set(self.kinds.groups.sizes)}
        return torch.tensor([known[size] for size in self.kinds.groups.sizes], dtype=torch.float64)

    def _of_groups(self, weight: Tensor | None) -> Tensor | None:
        own = self.of_streams(weight)
        return own if own is None or not any(self.kinds.sizes) else own[self.kinds.whose]

    def _tell_apart(self, point: Point, x: Tensor) -> Kinds:
        """See whether there are two kinds of image among a stream's."""
        if self.look.believed:
            raise ValueError("Norm layers run in another order than on the source's images.")
        split = self.look.split
        parts = torch.split(x, list(self.streams.sizes))
        found = [
            split.groups(point, *image_moments(part)) if split and len(part) >= FEWEST else ()
            for part in parts
        ]
        return self._part(found) if any(found) else self.kinds

    def _part(self, found: list[tuple[Tensor, ...]]) -> Kinds:
        """Given positions of two kinds of image, where a stream has two."""
        sizes, whose, share, of = list[int](), list[int](), list[float](), list[Tensor]()
        for stream, (images, kinds) in enumerate(zip(self.streams.sizes, found, strict=True)):
            own = torch.full((images,), len(sizes))
            for number, kind in enumerate(kinds):
                own[kind] = len(sizes) + number
            of.append(own)
            counts = [len(kind) for kind in kinds] or [images]
            sizes += counts
            whose += [stream] * len(counts)
            share += [count / images for count in counts]
        device = self.streams.of.device
        return Kinds(
            Groups(torch.cat(of).to(device), sizes) if any(found) else self.streams,
            torch.tensor(whose, device=device),
            torch.tensor(share, device=device),
            [tuple(len(kind) for kind in kinds) for kinds in found],
        )

    @cached_property
    def _found(self) -> tuple[Tensor, Tensor]:
        """Of every stream, over groups and times that layers ran: how far they went, behind each
        other, and how far each believed and the drift, (streams, layers, 2)."""
        rows = list[Tensor]()
        for name, norm in self.by.norms.items():
            size = 2 + sum(len(source) for source in self.by.sources(norm))
            ran = self.seen[name]
            none = self.by.average.new_zeros(len(self.kinds.share), size)
            rows.append(torch.stack(ran).mean(0) if ran else none)
        told = torch.stack([row[:, :2] for row in rows], 1)
        moved = torch.cat([row[:, 2:] for row in rows], 1)
        return self._of_streams(moved), self._of_streams(told)

    def _of_streams(self, found: Tensor) -> Tensor:
        if not any(self.kinds.sizes):
            return found
        share = self.kinds.share.to(found).view(-1, *[1] * (found.ndim - 1))
        total = found.new_zeros(len(self.streams.sizes), *found.shape[1:])
        return total.index_add_(0, self.kinds.whose, share * found)

    def take_in(self, stream: int) -> None:
        moved, told = self._found
        self.by.take_in(
            moved[stream], told[stream], self.kinds.sizes[stream], self.streams.sizes[stream]
        )
