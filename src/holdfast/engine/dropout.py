"""Accuracy by how often predictions change under dropout (Lee et al. 2024, AETTA)."""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any, Literal

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


class DropoutDisagreement(nn.Module):
    """e = share of (image, view) pairs whose label differs from the plain one; over
    (H(mean prediction)/ln C)³, since a model that predicts one class never disagrees; at most
    1 − 1/C; smoothed.

    Its masks come from a random state of its own. masks="fixed", for exact tests: the k-th mask of
    the stream keeps its i-th element iff ((i·2654435761 + k·2654445111) mod 2³²)/2³² ≥ rate.
    """

    error: Tensor
    seen: Tensor
    calls: Tensor
    draws_state: Tensor

    def __init__(
        self,
        network: Network,
        rate: float | None = None,
        *,
        views: int = VIEWS,
        masks: Masks = "random",
        seed: int = 0,
    ):
        super().__init__()
        self.network, self.views, self.masks = network, views, masks
        self.classes = network.head_rows
        self.rate = usual_rate(self.classes) if rate is None else rate
        self.places = stages(network.model)
        if not self.places:
            raise ValueError(
                f"{network.name} has no stages with two or more norm layers to put dropout after: "
                "take another estimator, such as estimator='agreement'."
            )
        self._draws = Draws(seed, network.device)
        self.register_buffer("error", torch.zeros((), dtype=torch.float64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bool))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("draws_state", self._draws.state.clone())

    @torch.no_grad()
    def forward(self, images: Tensor, logits: Tensor) -> float:
        """The accuracy of these answers to these images."""
        labels = logits.argmax(1)
        self._draws.state = self.draws_state
        with ExitStack() as hooks, self._draws.scope():
            for name in self.places:
                layer = self.network.model.get_submodule(name)
                hooks.enter_context(layer.register_forward_hook(self._drop))
            views = [Step(self.network, images).logits for _ in range(self.views)]
        self.draws_state.copy_(self._draws.state)
        differ = torch.stack([view.argmax(1) != labels for view in views])
        mean = torch.stack([view.double().softmax(1) for view in views]).mean((0, 1))
        error = float(differ.double().mean())
        certainty = float(-(mean * (mean + 1e-6).log()).sum()) / math.log(self.classes)
        most = 1 - 1 / self.classes
        raised = min(max(error / max(certainty, 1e-12) ** 3, 0.0), most)
        if not math.isfinite(certainty):  # views that overflow agree on nothing
            error = raised = most
        first = not bool(self.seen)
        before = error if first else float(self.error)
        self.error.fill_(SMOOTHING * before + (1 - SMOOTHING) * raised)
        self.seen.fill_(True)
        return 1 - float(self.error)

    def _drop(self, layer: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        if self.masks == "random":
            return nn.functional.dropout(output, self.rate)
        mask = _fixed_mask(output, int(self.calls), self.rate)
        self.calls += 1
        return output * mask / (1 - self.rate)


def _fixed_mask(like: Tensor, call: int, rate: float) -> Tensor:
    place = torch.arange(like.numel(), dtype=torch.int64)
    hashed = (place * 2654435761 + call * 2654445111) % 2**32
    return (hashed.double() / 2**32 >= rate).view(like.shape).to(like)
