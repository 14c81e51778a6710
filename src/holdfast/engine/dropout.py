"""Accuracy by how often predictions change under dropout (Lee et al. 2024, AETTA)."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from holdfast.engine.draws import Draws
from holdfast.engine.network import Network
from holdfast.engine.step import Step
from holdfast.parts.select import norm_layers

Masks = Literal["random", "fixed"]

VIEWS = 10
SMOOTHING = 0.6


def usual_rate(classes: int) -> float:
    """The published rates, by the data sets they are for."""
    return 0.4 if classes <= 10 else 0.3 if classes <= 100 else 0.2


def stages(model: nn.Module) -> list[str]:
    """Names of the parts of a network that hold two or more norm layers each: its stages. What only
    wraps the network is looked into."""

    def inside(name: str, module: nn.Module) -> list[tuple[str, nn.Module]]:
        parts = ((f"{name}.{child}".strip("."), part) for child, part in module.named_children())
        return [(called, part) for called, part in parts if len(norm_layers(part)) > 1]

    found = inside("", model)
    while len(found) == 1:
        deeper = inside(*found[0])
        if not deeper:
            break
        found = deeper
    return [name for name, _ in found]


class Disagreement(NamedTuple):
    """The share of (image, view) pairs whose label differs from the plain one; that over
    (H(mean prediction)/ln C)³, since a model that predicts one class never disagrees, and at most
    1 − 1/C; and how many masks that took."""

    error: float
    raised: float
    masks: int

    def smoothed(self, before: float | None) -> float:
        """With an average of before; the first begins at the error as it is."""
        return SMOOTHING * (self.error if before is None else before) + (1 - SMOOTHING) * (
            self.raised
        )


@dataclass
class DropoutViews:
    """Views of images under dropout behind layers of a network.

    masks="fixed", for exact tests: the k-th mask of the stream keeps its i-th element iff
    ((i·2654435761 + k·2654445111) mod 2³²)/2³² ≥ rate.
    """

    network: Network
    places: list[str]
    rate: float
    views: int = VIEWS
    masks: Masks = "random"
    _call: int = field(default=0, init=False)

    @torch.no_grad()
    def __call__(self, images: Tensor, labels: Tensor, draws: Draws, call: int) -> Disagreement:
        """How far they disagree with the labels. `call` masks were made before these."""
        self._call = call
        with ExitStack() as hooks, draws.scope(), self.network.as_written():
            for name in self.places:
                layer = self.network.model.get_submodule(name)
                hooks.enter_context(layer.register_forward_hook(self._drop))
            views = [Step(self.network, images).logits for _ in range(self.views)]
        classes = views[0].shape[1]
        differ = torch.stack([view.argmax(1) != labels for view in views])
        # On the processor, since some devices have no float64.
        mean = torch.stack([view.cpu().double().softmax(1) for view in views]).mean((0, 1))
        error = float(differ.cpu().double().mean())
        certainty = float(-(mean * (mean + 1e-6).log()).sum()) / math.log(classes)
        most = 1 - 1 / classes
        raised = min(max(error / max(certainty, 1e-12) ** 3, 0.0), most)
        if not math.isfinite(certainty):  # views that overflow agree on nothing
            error = raised = most
        return Disagreement(error, raised, self._call - call)

    def _drop(self, layer: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        call, self._call = self._call, self._call + 1
        if self.masks == "random":
            return nn.functional.dropout(output, self.rate)
        return output * _fixed_mask(output, call, self.rate) / (1 - self.rate)


def _fixed_mask(like: Tensor, call: int, rate: float) -> Tensor:
    place = torch.arange(like.numel(), dtype=torch.int64)
    hashed = (place * 2654435761 + call * 2654445111) % 2**32
    return (hashed.double() / 2**32 >= rate).view(like.shape).to(like)


class DropoutDisagreement(nn.Module):
    """The disagreement under dropout along a stream, smoothed. Its masks come from a random state
    of its own."""

    error: Tensor
    seen: Tensor
    calls: Tensor
    draws_state: Tensor

    def __init__(
        self,
        network: Network,
        rate: float | None = None,
        *,
        masks: Masks = "random",
        seed: int = 0,
    ):
        super().__init__()
        self.network = network
        places = stages(network.model)
        if not places:
            raise ValueError(
                f"{network.name} has no stages with two or more norm layers to put dropout after: "
                "take another estimator, such as estimator='agreement'."
            )
        self.rate = usual_rate(network.head_rows) if rate is None else rate
        self._views = DropoutViews(network, places, self.rate, masks=masks)
        self._draws = Draws(seed, network.device)
        self.register_buffer("error", torch.zeros((), dtype=torch.float64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bool))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("draws_state", self._draws.state.clone())

    def forward(self, images: Tensor, logits: Tensor) -> float:
        """The accuracy of these answers to these images."""
        self._draws.state = self.draws_state
        found = self._views(images, logits.argmax(1), self._draws, int(self.calls))
        self.draws_state.copy_(self._draws.state)
        self.calls += found.masks
        self.error.fill_(found.smoothed(float(self.error) if self.seen else None))
        self.seen.fill_(True)
        return 1 - float(self.error)
