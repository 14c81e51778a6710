"""The source model beside the one that adapts: what it would have said, and how far images are from
those that it knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.engine.moments import image_moments, together
from holdfast.engine.network import Network
from holdfast.engine.norms import batch_norms
from holdfast.engine.steady import BySteady
from holdfast.engine.step import Step
from holdfast.source.budgets import Budgets, Watcher
from holdfast.source.point import Point


@dataclass(frozen=True)
class Kind:
    """Images of a batch that are of one kind: their positions; and drift: over the network's
    layers, how much of their distance from the source is more than source batches have, 0 to 1."""

    images: Tensor
    drift: float


@dataclass(frozen=True)
class SourceAnswer:
    """A batch through the source model: its logits; a second opinion, by the same weights under the
    statistics of `steady`; and the one or two kinds of image in it."""

    logits: Tensor
    second: Tensor
    kinds: tuple[Kind, ...]


class Reference:
    """The source model, as it was trained, with a look at what goes into its norm layers.

    second: the network of the second opinion, which shares its weights, where there is batch norm
    to go by a batch. Nothing that is learnt changes either.
    """

    def __init__(self, fresh: Callable[[], Network], budgets: Budgets):
        self.network = network = fresh()
        network.model.requires_grad_(False)
        self.budgets = budgets
        layers = {n: each for n, each in batch_norms(network.model).items() if n in budgets.layers}
        self._watcher = Watcher(layers)
        by_source = layers and all(layer.running_mean is not None for layer in layers.values())
        self.second = _second(network, fresh(), budgets) if by_source else None

    @property
    def networks(self) -> list[Network]:
        return [self.network] if self.second is None else [self.network, self.second]

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """The source model's answer, and no more."""
        self._watcher.begin(len(images))
        try:
            return self.network(images)[1]
        finally:
            self._watcher.found.clear()

    @torch.no_grad()
    def __call__(self, images: Tensor) -> SourceAnswer:
        watcher, step = self._watcher, Step(self.network, images)
        watcher.found.clear()  # what an error may have left
        watcher.begin(len(images))
        logits, features = step.logits, image_moments(step.features)
        found = {place: parts[0] for place, parts in watcher.found.items()}
        watcher.found.clear()
        points = [
            (self.budgets.layers[layer][use], moments)
            for (layer, use), moments in found.items()
            if layer is not None
        ]
        groups: tuple[Tensor, ...] = ()
        if points and self.budgets.split is not None:
            first, moments = points[0]
            groups = self.budgets.split.groups(first, *moments)
        # Without a norm layer it is for the features to tell.
        points = points or [(self.budgets.features, features)]
        return SourceAnswer(
            logits,
            logits if self.second is None else self.second(images)[1],
            tuple(
                Kind(group, sum(_excess(*at, group) for at in points) / len(points))
                for group in groups or (torch.arange(len(images)),)
            ),
        )


def _second(network: Network, other: Network, budgets: Budgets) -> Network:
    """The other one, a copy of the first, under the statistics of `steady` and with the first's
    own weights."""
    pairs = zip(other.model.parameters(), network.model.parameters(), strict=True)
    for parameter, shared in pairs:
        parameter.data = shared.data
    other.model.requires_grad_(False)
    other.normalise(BySteady(budgets))
    return other


def _excess(point: Point, moments: tuple[Tensor, Tensor], group: Tensor) -> float:
    """The share of these images' distance from the source that source images do not have."""
    mean, var = together(*(each.cpu()[group] for each in moments))
    distance = float(point.drift(mean.to(point.mean), var.to(point.mean)))
    return max(0.0, 1 - point.limit(len(group)) / max(distance, 1e-30))
