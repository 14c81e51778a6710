"""The source model beside the one that adapts: what it would have said, and how far images are from
those that it knows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.engine.moments import image_moments, together
from holdfast.engine.network import Network
from holdfast.engine.norms import batch_norms
from holdfast.engine.step import Step
from holdfast.source.budgets import Budgets, Point, Watcher


@dataclass(frozen=True)
class Kind:
    """Images of a batch that are of one kind: their positions; and drift: over the network's
    layers, how much of their distance from the source is more than source batches have, 0 to 1."""

    images: Tensor
    drift: float


@dataclass(frozen=True)
class SourceAnswer:
    """A batch through the source model: its logits, and the one or two kinds of image in it."""

    logits: Tensor
    kinds: tuple[Kind, ...]


class Reference:
    """The source model, as it was trained, with a look at what goes into its norm layers."""

    def __init__(self, network: Network, budgets: Budgets):
        network.model.requires_grad_(False)
        self.network, self.budgets = network, budgets
        layers = {n: each for n, each in batch_norms(network.model).items() if n in budgets.layers}
        self._watcher = Watcher(layers)

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
            groups = self.budgets.split.groups(*points[0][1])
        # Without a norm layer it is for the features to tell.
        points = points or [(self.budgets.features, features)]
        return SourceAnswer(
            logits,
            tuple(
                Kind(group, sum(_excess(*at, group) for at in points) / len(points))
                for group in groups or (torch.arange(len(images)),)
            ),
        )


def _excess(point: Point, moments: tuple[Tensor, Tensor], group: Tensor) -> float:
    """The share of these images' distance from the source that source images do not have."""
    mean, var = together(*(each.cpu()[group] for each in moments))
    distance = float(point.drift(mean.to(point.mean), var.to(point.mean)))
    return max(0.0, 1 - point.limit(len(group)) / max(distance, 1e-30))
