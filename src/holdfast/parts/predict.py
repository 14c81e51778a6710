"""Which logits leave."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor, nn

from holdfast.engine.network import Network
from holdfast.engine.step import Step


class Predicted(NamedTuple):
    """Logits of a batch, and what will be remembered once the batch has proved good."""

    logits: Tensor
    commit: Callable[[], None] | None = None


class Export(Protocol):
    def __call__(self, network: Network) -> nn.Module:
        """A plain eval-mode module of the network as it is."""


class Prediction(nn.Module, ABC):
    """Makes the logits of a batch. Its buffers are its state."""

    # Whether it is made when the batch has been learnt from.
    after = False

    @abstractmethod
    def forward(self, step: Step) -> Predicted: ...

    @abstractmethod
    def module(self, export: Export, exact: bool) -> nn.Module:
        """A plain module that predicts as this does; if `exact`, with all that depends on the
        batch as a whole, else so that it serves single images."""


class Student(Prediction):
    """The adapted network's own logits."""

    def __init__(self, network: Network, *, after: bool = False):
        super().__init__()
        self.network = network
        self.after = after

    def forward(self, step: Step) -> Predicted:
        return Predicted(step.logits.detach())

    def module(self, export: Export, exact: bool) -> nn.Module:
        return export(self.network)
