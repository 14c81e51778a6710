"""Which of several learnt states a batch meets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NamedTuple

from torch import Tensor, nn

# What is learnt, by name: weights, the optimiser's state, averages of terms.
Learnt = Mapping[str, Tensor]


class Routed(NamedTuple):
    """The state that a batch meets: as much of what is learnt as is to be replaced, by name.

    learn: what the batch is learnt with, and stays until the next one.
    predict: what it is predicted with, if that is another; a prediction after the update is made
    with what was learnt.
    commit: is given what is learnt once the batch is done with and has proved good.
    """

    learn: Learnt
    predict: Learnt | None = None
    commit: Callable[[Learnt], None] | None = None


class Route(nn.Module, ABC):
    """Chooses, before the forward, which state a batch meets. Its buffers are its state, which a
    reset rule leaves alone: that takes back the state at hand."""

    @abstractmethod
    def forward(self, images: Tensor, learnt: Learnt) -> Routed:
        """`learnt` are the tensors themselves, which are not to be changed here; nor is anything
        else before `commit`, since the batch may be bad or only be predicted."""
