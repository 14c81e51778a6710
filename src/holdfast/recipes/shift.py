"""shift: features are moved by as much as the stream's mean is away from the source's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from holdfast import Method, register, setting
from holdfast.parts import (
    ByBatch,
    BySource,
    Export,
    Network,
    Predicted,
    Prediction,
    Select,
    Step,
    Task,
    WrappedHead,
)


class ShiftedHead(WrappedHead):
    """The same on features that are moved."""

    def __init__(self, head: nn.Module, by: Tensor):
        super().__init__(head)
        assert isinstance(head.weight, Tensor)  # find_head has seen to it
        # As the head takes one feature: broadcast over tokens, or the places of a map.
        self.by = nn.Buffer(by.reshape(head.weight.shape[1:]).to(head.weight.dtype))

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.head(inputs + self.by)
        return output


class Shifted(Prediction):
    """The head's logits of f + μ_S − m, m being a running mean of the features of earlier
    batches; of the first batch, those of f."""

    def __init__(self, network: Network, source: Tensor, momentum: float):
        super().__init__(network)
        self.momentum = momentum
        self.source = nn.Buffer(source, persistent=False)
        self.mean = nn.Buffer(torch.zeros_like(source))
        self.seen = nn.Buffer(torch.zeros((), dtype=torch.bool))

    @property
    def by(self) -> Tensor:
        """How far features are moved."""
        return self.source - self.mean if self.seen else torch.zeros_like(self.source)

    def forward(self, step: Step) -> Predicted:
        features, logits = step.features.detach(), step.logits.detach()
        if self.seen:
            head = self.network.head
            assert isinstance(head.weight, Tensor)
            moved = (features + self.by).reshape(-1, *head.weight.shape[1:])
            # Past its hooks, which are for forwards of the network.
            logits = head.forward(moved.to(head.weight.dtype)).flatten(1).to(logits)
        mean = features.mean(0)

        def commit() -> None:
            new = torch.lerp(mean, self.mean, self.momentum) if self.seen else mean
            self.mean.copy_(new)
            self.seen.fill_(True)

        return Predicted(logits, commit)

    def module(self, export: Export, exact: bool) -> nn.Module:
        model, name = export(self.network), str(self.network.head_name)
        head = ShiftedHead(model.get_submodule(name), self.by)
        if not name:  # the model is nothing but its head
            return head
        model.set_submodule(name, head)
        return model


@register("shift")
@dataclass(frozen=True)
class Shift(Method):
    """Moves features by as much as their running mean is away from the source's; nothing trains.

    logits = head(f + μ_S − m), m: 0.9 m + 0.1 · mean of f, over earlier batches
    """

    paper: ClassVar[str] = (
        "Niu et al. 2024, Test-time model adaptation with only forward passes (FOA), arXiv "
        "2404.01650, its activation shifting alone"
    )
    predicts: ClassVar[str] = "the head's logits of moved features; of the first batch, as they are"
    note: ClassVar[str] = (
        "Published for a ViT's last feature, together with prompts found by CMA-ES, which are not "
        "here. One forward and no gradients. The mean takes in whatever classes a stream brings: "
        "where labels come in long runs, a part of what is shifted away is the class."
    )
    memory: ClassVar[str] = "two features"
    groups: ClassVar[bool] = True

    momentum: float = setting(
        0.9, "share of the old mean, of earlier batches", at_least=0, at_most=1
    )
    statistics: Literal["source", "batch"] = setting(
        "source", "batch norm by the source's statistics, or by the batch's"
    )

    def selection(self) -> Select:
        return Select("nothing", ByBatch() if self.statistics == "batch" else BySource())

    def prediction(self, task: Task) -> Prediction:
        return Shifted(task.network, task.mean_feature(self.statistics), self.momentum)

    def needs(self) -> tuple[str, ...]:
        return ("prototypes",)
