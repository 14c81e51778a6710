"""Which state a batch meets, and which logits leave."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor, nn

from holdfast.engine.network import Network
from holdfast.engine.step import Step


class Predicted(NamedTuple):
    """Logits of a batch, and what changes once the batch has proved good.

    seen: the forward whose features go with the logits; if not given, the adapted network's.
    """

    logits: Tensor
    commit: Callable[[], None] | None = None
    seen: Step | None = None


# Makes a plain eval-mode module of a network as it is.
Export = Callable[[Network], nn.Module]


class Prediction(nn.Module, ABC):
    """Makes the logits of a batch. Its buffers are its state.

    network: the one whose features go with the logits.
    """

    # Whether it is made when the batch has been learnt from.
    after = False

    def __init__(self, network: Network):
        super().__init__()
        self.network = network

    @abstractmethod
    def forward(self, step: Step) -> Predicted: ...

    def told(self) -> Mapping[str, Any]:
        """What is to be said of the last batch, by the names of `Last`."""
        return {}

    def module(self, export: Export, exact: bool) -> nn.Module:
        """A plain module that predicts as this does; if `exact`, with all that depends on the
        batch as a whole, else so that it serves single images."""
        return export(self.network)


class Student(Prediction):
    """The adapted network's own logits."""

    def __init__(self, network: Network, *, after: bool = False):
        super().__init__(network)
        self.after = after

    def forward(self, step: Step) -> Predicted:
        return Predicted(step.logits.detach())


class Refine(nn.Module, ABC):
    """Changes the logits that leave, whatever host made them. Its buffers are its state.

    Terms and memories never see what it gives. Of several, each is given what the one before it
    gave, in the order written. Settings that its answers depend on stand in `extra_repr`.
    """

    # Whether the softmax of what it gives still are probabilities. If not, whatever needs some
    # (confidence, entropy, calibration, health) takes the logits as they were before it.
    keeps_probabilities = True

    @abstractmethod
    def forward(self, logits: Tensor, step: Step) -> Predicted:
        """Better logits. `step` is the forward that these belong to, for its features."""

    def module(self, predictor: nn.Module, head: str, exact: bool) -> nn.Module:
        """A plain module that refines what `predictor` gives; `exact` as in `Prediction.module`.
        `head` names the layer in `predictor` whose input is the feature, for
        `features_and_logits`."""
        raise ValueError(
            f"{type(self).__name__} refines predictions of a stream, which a plain module cannot "
            "do: use adapter.predict(images), or leave the plug-in out to export."
        )


# What is learnt, by name: weights, the optimiser's state, averages of terms; and with it what reset
# rules count.
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
        """`learnt` are the tensors themselves, which are not to be changed here, but for a trial
        after which they are as they were; nor is anything else before `commit`, since the batch
        may be bad or only be predicted."""

    def told(self) -> Mapping[str, Any]:
        """What is to be said of the last batch, by the names of `Last`."""
        return {}
