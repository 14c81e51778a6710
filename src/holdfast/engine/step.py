"""One batch seen through the model: everything about it is computed once and shared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from holdfast.engine.heads import Call
from holdfast.engine.network import Network

T = TypeVar("T")


class Step:
    """The forward of a batch, made when first asked for, and what follows from it.

    learning: whether gradients will be wanted.
    record: whether norm layers take the batch into their averages.
    aside: whether they go on as when learning, but record nothing.
    newest: how many of the images are new; the others, before them, are a window's.
    before: the same batch seen before a trial move of the weights, as SAM makes.
    """

    def __init__(
        self,
        network: Network,
        images: Tensor,
        *,
        learning: bool = False,
        record: bool = False,
        aside: bool = False,
        newest: int | None = None,
        before: Step | None = None,
    ):
        self.network = network
        self.images = images
        self.learning = learning
        self.record = record
        self.aside = aside
        self.newest = len(images) if newest is None else newest
        self.before = before
        self._made: dict[Callable[[Step], object], object] = {}
        self._reliable: dict[float, Tensor] = {}
        self._chosen: dict[float | None, Tensor] = {}

    @cached_property
    def _forward(self) -> tuple[list[Call], Tensor]:
        with torch.set_grad_enabled(self.learning):
            return self.network(self.images, record=self.record, aside=self.aside)

    @property
    def logits(self) -> Tensor:
        return self._forward[1]

    def computed_logits(self) -> list[Tensor]:
        """The logits, if anybody has asked for them."""
        return [self.logits] if "_forward" in vars(self) else []

    @cached_property
    def features(self) -> Tensor:
        """The input of the head."""
        with torch.set_grad_enabled(self.learning):
            return self.network.feature(*self._forward)

    @cached_property
    def log_probabilities(self) -> Tensor:
        with torch.set_grad_enabled(self.learning):
            return self.logits.log_softmax(1)

    @cached_property
    def probabilities(self) -> Tensor:
        """Softmax of the logits, with its gradient."""
        with torch.set_grad_enabled(self.learning):
            return self.log_probabilities.exp()

    @property
    def detached_probabilities(self) -> Tensor:
        """Softmax of the logits as plain numbers, for targets and filters."""
        return self.probabilities.detach()

    @cached_property
    def entropy(self) -> Tensor:
        """Softmax entropy of each image, in nats, with its gradient."""
        with torch.set_grad_enabled(self.learning):
            return -(self.probabilities * self.log_probabilities).sum(1)

    @cached_property
    def labels(self) -> Tensor:
        """The predicted class of each image."""
        return self.logits.detach().argmax(1)

    def force_of(self, loss: Tensor) -> Tensor:
        """Σ over images of ‖∂loss/∂feature‖, through the head alone; 0 if it does not depend on
        this forward."""
        by_feature, by_logits = _gradient(loss, self.features, self.logits)
        if by_logits is not None and not self._features_give_logits:
            through_head = by_logits @ self.network.rows
            by_feature = through_head if by_feature is None else by_feature + through_head
        if by_feature is None:
            return self.features.new_zeros(())
        force: Tensor = torch.linalg.vector_norm(by_feature, dim=1).sum()
        return force

    @cached_property
    def _features_give_logits(self) -> bool:
        """Whether autograd knows a way from these features to the logits: not where they are a view
        or a cast of what the head was given, or both came out of one compiled graph."""
        return _gradient(self.logits.sum(), self.features)[0] is not None

    def reliable(self, factor: float) -> Tensor:
        """Which images have an entropy below factor · ln C (strictly)."""
        if factor not in self._reliable:
            limit = factor * math.log(self.logits.shape[1])
            self._reliable[factor] = self.entropy.detach() < limit
        return self._reliable[factor]

    def chosen(self, factor: float | None) -> Tensor:
        """Indices of the reliable images; without a factor, of all."""
        if factor not in self._chosen:
            all_images = torch.ones_like(self.labels, dtype=torch.bool)
            mask = all_images if factor is None else self.reliable(factor)
            self._chosen[factor] = mask.nonzero().squeeze(1)
        return self._chosen[factor]

    @property
    def reliable_count(self) -> int | None:
        """How many of the newest images are reliable, where a method asked; by the first limit
        asked for."""
        first = len(self.images) - self.newest
        return next((int(mask[first:].sum()) for mask in self._reliable.values()), None)

    def view(self, images: Tensor, of: Tensor | None = None, *, learning: bool = True) -> Step:
        """Other images through the same network: one more forward, normalised by themselves as
        when learning, and recorded nowhere.

        of: where they are a view of some of the batch's images only, the indices of these.
        learning: whether gradients will be wanted, where they are of the batch itself.
        """
        newest = None
        if of is not None:
            newest = int((of >= len(self.images) - self.newest).sum())
        prepared = self.network.prepare(images)
        learning = self.learning and learning
        return Step(self.network, prepared, learning=learning, aside=True, newest=newest)

    def cached(self, make: Callable[[Step], T]) -> T:
        """What `make` makes of this batch, made once and shared by all who ask."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]  # type: ignore[return-value]


class JoinedStep(Step):
    """The forwards of a batch's parts, one after the other, as one of all its images."""

    def __init__(self, parts: Sequence[Step]):
        super().__init__(parts[0].network, torch.cat([part.images for part in parts]))
        self.parts = parts

    @cached_property
    def _forward(self) -> tuple[list[Call], Tensor]:
        return [], torch.cat([part.logits for part in self.parts])

    @cached_property
    def features(self) -> Tensor:
        return torch.cat([part.features for part in self.parts])


def _gradient(loss: Tensor, *of: Tensor) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(loss, of, retain_graph=True, allow_unused=True)
