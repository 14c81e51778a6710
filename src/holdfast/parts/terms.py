"""Objective terms: what a term is, and those that two or more methods use."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from holdfast.engine.step import Step
from holdfast.parts.descent import Descent


class TermResult(NamedTuple):
    """What a term makes of a batch: its loss, over how many images, and what it will change.

    `commit` runs when loss and gradients have proved finite, and not before. Without a loss there
    is something to take in, but nothing to learn.
    """

    loss: Tensor | None
    images: int
    commit: Callable[[], None] | None = None


class Term(nn.Module, ABC):
    """One part of what is minimised. Its buffers are its state, there from construction.

    A term that drives makes a step happen when it speaks; one that does not (a regulariser) is
    only added to a step that happens anyway.
    """

    drives = True

    def __init__(self, label: str, weight: float = 1.0):
        super().__init__()
        self.label = label
        self.weight: float | Tensor = weight

    @abstractmethod
    def forward(self, step: Step) -> TermResult | None:
        """None: the term abstains."""

    @property
    def class_prototypes(self) -> Tensor | None:
        """Prototypes of the classes that it makes of the stream, one row each, if it does."""
        return None


class Pull(Term):
    """A term that goes by the gradient of all others: it is told that, and then added to them. It
    holds, but never drives."""

    drives = False

    @abstractmethod
    def told(self, gradient: Mapping[str, Tensor | None]) -> Callable[[], None]:
        """Is given the gradient of the other terms for all that trains, by name, None where there
        is none; without a step, that of the terms that hold. Returns what is to change once the
        batch has proved good."""


class Weigher(Pull):
    """A pull that sets the weights of other terms, which are its own: these are asked last of all
    that drive, and it is shown before what the others make of the batch."""

    def __init__(self, label: str, own: Sequence[Term]):
        super().__init__(label)
        self.own = tuple(own)  # a tuple, since their state is their own

    @abstractmethod
    def weigh(self, step: Step, loss: Tensor | None, descent: Descent) -> None:
        """Set the weights for this batch. loss: of the others that drive, weighted; None where none
        of them speaks. descent: how the step will be taken."""


def symmetric_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−½ Σ p log q − ½ Σ q log p of each image, p and q being the softmax of both; no gradient
    reaches the target."""
    log_q, log_p = logits.log_softmax(1), target.detach().log_softmax(1)
    return -0.5 * (log_p.exp() * log_q + log_q.exp() * log_p).sum(1)


class OffsetEntropy(Term):
    """Mean of −Σ p log(p + 1e-6) over the images, divided by a number, such as that of classes."""

    def __init__(self, divisor: int = 1):
        super().__init__("entropy")
        self.divisor = divisor

    def forward(self, step: Step) -> TermResult:
        p = step.probabilities
        entropies = -(p * (p + 1e-6).log()).sum(1)
        return TermResult(entropies.mean() / self.divisor, len(step.images))


class ReliableEntropy(Term):
    """Weighted entropy of the images that are reliable and not redundant.

    L = mean over the kept of exp(E0 − H)·H, where H < E0 = factor · ln C, and |cos(q, p)| <
    redundancy to q, the moving average of the kept predictions (Niu et al. 2022, EATA).
    """

    q: Tensor
    seen: Tensor

    def __init__(self, classes: int, factor: float, redundancy: float, like: Tensor):
        super().__init__("entropy")
        self.factor = factor
        self.redundancy = redundancy
        self.limit = factor * math.log(classes)
        self.register_buffer("q", torch.zeros(classes, dtype=like.dtype, device=like.device))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bool))

    def forward(self, step: Step) -> TermResult | None:
        keep = step.reliable(self.factor)
        if self.seen:
            cosine = torch.cosine_similarity(self.q[None], step.detached_probabilities, dim=1)
            keep = keep & (cosine.abs() < self.redundancy)
        chosen = keep.nonzero().squeeze(1)
        if not len(chosen):
            return None
        entropy = step.entropy[chosen]
        weight = (self.limit - entropy.detach()).exp()
        mean = step.detached_probabilities[chosen].mean(0)

        def commit() -> None:
            self.q.copy_(0.9 * self.q + 0.1 * mean if self.seen else mean)
            self.seen.fill_(True)

        return TermResult((weight * entropy).mean(), len(chosen), commit)
