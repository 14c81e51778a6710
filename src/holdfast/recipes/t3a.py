"""T3A: classify by prototypes that follow the stream; nothing trains."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from holdfast import Method, register, setting
from holdfast.engine.heads import at_each_place, by_image
from holdfast.parts import (
    ByBatch,
    BySource,
    Export,
    Network,
    Predicted,
    Prediction,
    Select,
    Step,
    Supports,
    Task,
    features_and_logits,
)


def classify(
    supports: Supports, features: Tensor, logits: Tensor, newest: int | None = None
) -> Predicted:
    """By prototypes with the newest images in, which are all if not said."""
    joined = supports.join(features, logits, newest)
    prototypes = nn.functional.normalize(supports.class_sums(joined), dim=1)
    return Predicted(features @ prototypes.T, lambda: supports.take(joined))


class NearestPrototype(Prediction):
    """Logits are the products of the raw feature with each class's prototype, without a bias."""

    def __init__(self, network: Network, keep: int):
        super().__init__(network)
        self.supports = Supports(network, keep)

    def forward(self, step: Step) -> Predicted:
        return classify(self.supports, step.features.detach(), step.logits.detach(), step.newest)

    def module(self, export: Export, exact: bool) -> nn.Module:
        model, name = export(self.network), str(self.network.head_name)
        if exact:
            return WithSupports(model, name, copy.deepcopy(self.supports))
        head = PrototypeHead(model.get_submodule(name), self.supports)
        if not name:  # the model is nothing but its head
            return head
        model.set_submodule(name, head)
        return model


class PrototypeHead(nn.Module):
    """In place of a head: prototypes, which each image joins for its own prediction only, as a
    batch of one would."""

    def __init__(self, head: nn.Module, supports: Supports):
        super().__init__()
        self.head = head
        limits, leaving = supports.weakest()
        self.sums = nn.Buffer(supports.sums.clone())
        self.limits = nn.Buffer(limits)
        self.leaving = nn.Buffer(leaving)

    def forward(self, inputs: Tensor) -> Tensor:
        output, (classes, size) = self.head(inputs), self.sums.shape
        features = by_image(inputs.to(self.sums), size, self.head)
        logits = by_image(output.to(self.sums), classes, self.head)
        assert features is not None and logits is not None  # the adapter has seen to it
        log_p = logits.log_softmax(1)
        label = logits.argmax(1)
        enters = -(log_p.exp() * log_p).sum(1) < self.limits[label]
        moved = nn.functional.normalize(features, dim=1) - self.leaving[label]
        own = self.sums[label] + enters[:, None] * moved
        own_score = (features * nn.functional.normalize(own, dim=1)).sum(1, keepdim=True)
        scores = features @ nn.functional.normalize(self.sums, dim=1).T
        return at_each_place(scores.scatter(1, label[:, None], own_score), output, self.head)


class WithSupports(nn.Module):
    """A model and its supports, which each batch joins for its own prediction only."""

    def __init__(self, model: nn.Module, head: str, supports: Supports):
        super().__init__()
        self.model = model
        self.head = head
        self.supports = supports

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        features, logits = features_and_logits(self.model, self.head, images)
        with torch.autocast(images.device.type, enabled=False):
            return classify(self.supports, features, logits).logits


@register("t3a")
@dataclass(frozen=True)
class T3a(Method):
    """Classifies by class prototypes made of the stream's most certain features.

    logits = f · P/‖P‖, P[c] = Σ of the `keep` supports of class c with the lowest entropy
    """

    paper: ClassVar[str] = (
        "Iwasawa and Matsuo 2021, Test-time classifier adjustment module for model-agnostic domain "
        "generalization, NeurIPS 2021"
    )
    predicts: ClassVar[str] = "products with prototypes, the batch's own features included"

    note: ClassVar[str] = (
        "The batch joins the supports before its own prediction. In frozen() each image joins them "
        "for itself, as a batch of one would; frozen(statistics='batch') lets each batch join."
    )
    keeps_samples: ClassVar[bool] = True
    memory: ClassVar[str] = (
        "classes × keep × features numbers of supports, and as much again for reset(): 1.6 GB in "
        "float32 for 1,000 classes, 100 supports and 2,048 features"
    )
    # The paper does not say by which statistics; its figures fit these.
    presets: ClassVar = {
        "cifar100-c": {"statistics": "source"},
        "imagenet-c": {"statistics": "batch"},
    }

    keep: int = setting(100, "supports of a class, those of lowest entropy", at_least=1)
    statistics: Literal["source", "batch"] = setting(
        "source", "batch norm by the source's statistics, or by the batch's"
    )

    def selection(self) -> Select:
        return Select("nothing", ByBatch() if self.statistics == "batch" else BySource())

    def prediction(self, task: Task) -> Prediction:
        return NearestPrototype(task.network, self.keep)
