"""One batch seen through the model: everything about it is computed once and shared."""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor

from holdfast.split import Network


class Step:
    """The forward of a batch, and what follows from it."""

    def __init__(self, network: Network, images: Tensor):
        self.network = network
        self.images = images
        self._seen, self.logits = network(images)
        self._reliable: dict[float, Tensor] = {}
        self._chosen: dict[float | None, Tensor] = {}

    @cached_property
    def features(self) -> Tensor:
        """The input of the head."""
        return self.network.feature(self._seen, self.logits)

    @cached_property
    def log_probabilities(self) -> Tensor:
        return self.logits.log_softmax(1)

    @cached_property
    def probabilities(self) -> Tensor:
        """Softmax of the logits, detached."""
        return self.log_probabilities.detach().exp()

    @cached_property
    def entropy(self) -> Tensor:
        """Softmax entropy of each image, in nats, with its gradient."""
        return -(self.log_probabilities.exp() * self.log_probabilities).sum(1)

    @cached_property
    def labels(self) -> Tensor:
        """The predicted class of each image."""
        return self.logits.detach().argmax(1)

    def reliable(self, factor: float) -> Tensor:
        """Which images have an entropy below factor · ln C (strictly)."""
        if factor not in self._reliable:
            limit = factor * math.log(self.logits.shape[1])
            self._reliable[factor] = self.entropy.detach() < limit
        return self._reliable[factor]

    def chosen(self, factor: float | None) -> Tensor:
        """Indices of the reliable images; without a factor, of all."""
        if factor not in self._chosen:
            every = torch.ones_like(self.labels, dtype=torch.bool)
            mask = every if factor is None else self.reliable(factor)
            self._chosen[factor] = mask.nonzero().squeeze(1)
        return self._chosen[factor]

    @property
    def reliable_count(self) -> Tensor | None:
        """How many images are reliable, where a method asked; by the first limit asked for."""
        return next((mask.sum() for mask in self._reliable.values()), None)

    def view(self, images: Tensor) -> Tensor:
        """Logits of the same network for other images: one more forward."""
        return self.network(self.network.prepare(images))[1]
