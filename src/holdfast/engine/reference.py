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
from holdfast.source.split import FEWEST, two_means


@dataclass(frozen=True)
class Seen:
    """A batch through the source model.

    drift: over the network's layers, how much of a batch's distance from the source is more than
    source batches have: 0 to 1. mixed: the same of how far apart two kinds of image lie in it.
    """

    logits: Tensor
    drift: float
    mixed: float


class Reference:
    """The source model, as it was trained, with a look at what goes into its norm layers."""

    def __init__(self, network: Network, budgets: Budgets):
        network.model.requires_grad_(False)
        self.network, self.budgets = network, budgets
        layers = {n: each for n, each in batch_norms(network.model).items() if n in budgets.layers}
        self._watcher = Watcher(layers)

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Seen:
        watcher, step = self._watcher, Step(self.network, images)
        watcher.found.clear()  # what an error may have left
        watcher.begin(len(images))
        logits, moments = step.logits, image_moments(step.features)
        found = {place: parts[0] for place, parts in watcher.found.items()}
        watcher.found.clear()
        excess = [
            _excess(self.budgets.layers[layer][use], moments, len(images))
            for (layer, use), moments in found.items()
            if layer is not None
        ]
        if not excess:  # no layer tells, so that features have to
            excess = [_excess(self.budgets.features, moments, len(images))]
        mixed = self._mixed(*next(iter(found.values()))) if found else 0.0
        return Seen(logits, sum(excess) / len(excess), mixed)

    def _mixed(self, mean: Tensor, var: Tensor) -> float:
        split = self.budgets.split
        if split is None or len(mean) < FEWEST:
            return 0.0
        ratio = float(two_means(split.place(mean, var))[1].nan_to_num(0, posinf=1e30))
        return max(0.0, 1 - split.limit(len(mean)) / max(ratio, 1e-30))


def _excess(point: Point, moments: tuple[Tensor, Tensor], images: int) -> float:
    """The share of a batch's distance that source batches do not have."""
    distance = float(point.drift(*(each.to(point.mean) for each in together(*moments))))
    return max(0.0, 1 - point.limit(images) / max(distance, 1e-30))
