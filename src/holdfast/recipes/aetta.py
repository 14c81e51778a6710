"""aetta: go back to the source when accuracy, as dropout tells it, is low or falls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from holdfast import Method, register, setting
from holdfast.engine.dropout import Disagreement, DropoutViews, stages, usual_rate
from holdfast.parts import ByBatch, Network, Outcome, Step, Task, Upkeep
from holdfast.util.settings import ByClasses
from holdfast.util.words import listed

BY_CLASSES = ByClasses(usual_rate, "0.4, 0.3 or 0.2 for up to 10, up to 100 or more classes")


class ResetByEstimate(Upkeep):
    """Go back to the source when the estimate is low, or lower than it was a while ago.

    The estimate is made before the step, of every batch; the rule is asked after a step. A reset
    empties the list of estimates, but the average behind them goes on.
    """

    after = "batch"

    def __init__(self, method: Aetta, task: Task):
        super().__init__()
        self.method, self.task = method, task
        layers = method.places(task.network)
        self.views = DropoutViews(task.network, layers, method.dropout, method.views, method.masks)
        self.error = nn.Buffer(torch.zeros((), dtype=torch.float64))
        self.seen = nn.Buffer(torch.zeros((), dtype=torch.bool))
        self.calls = nn.Buffer(torch.zeros((), dtype=torch.int64))
        # The latest estimates, the newest last; `count` of them hold.
        self.recent = nn.Buffer(torch.zeros(2 * method.window, dtype=torch.float64))
        self.count = nn.Buffer(torch.zeros((), dtype=torch.int64))

    def before(self, step: Step) -> None:
        step.cached(self.disagreement)

    def disagreement(self, step: Step) -> Disagreement:
        network = self.task.network
        # Under batch statistics a batch is predicted as it is learnt from, if it is.
        alike = network.statistics is None or self.task.normalisation == ByBatch()
        made = bool(step.computed_logits())
        plain = step if alike and made else Step(network, step.images)
        labels = plain.logits.detach().argmax(1)
        return self.views(step.images, labels, self.task.draws, int(self.calls))

    def forward(self, outcome: Outcome) -> None:
        if not outcome.step.record:
            return  # one image alone, that was only predicted
        disagreement = outcome.step.cached(self.disagreement)
        self.calls.add_(disagreement.masks)
        self.error.fill_(disagreement.smoothed(float(self.error) if self.seen else None))
        self.seen.fill_(True)
        if not outcome.proposal.stepped:
            return
        estimate = 100 * (1 - self.error)
        self.recent.copy_(torch.cat([self.recent[1:], estimate[None]]))
        self.count.add_(1)
        if estimate < self.method.reset_below or self._fell():
            outcome.forget()
            self.recent.zero_()
            self.count.zero_()

    def told(self) -> Mapping[str, Any]:
        return {"estimate": 100 * (1 - float(self.error))} if self.seen else {}

    def _fell(self) -> bool:
        earlier, latest = self.recent.chunk(2)
        full = int(self.count) >= len(self.recent)
        return full and bool(latest.mean() + self.method.drop < earlier.mean())


@register("aetta")
@dataclass(frozen=True)
class Aetta(Method):
    """Goes back to the source when accuracy, as dropout tells it, is low or falls.

    θ ← θ0 where 100 (1 − ê) is low or fell, e = share of changed labels / (H(mean p)/ln C)³
    """

    paper: ClassVar[str] = (
        "Lee et al. 2024, AETTA: Label-free accuracy estimation for test-time adaptation, "
        "arXiv 2404.01351"
    )
    note: ClassVar[str] = (
        "It cannot tell a harder domain from damage, and resets on both. The average behind the "
        "estimate outlives a reset, so that a second may follow at once. A batch without a step is "
        "estimated, but never leads to a reset. The estimate is of the network that learns, also "
        "where a teacher answers. dropout goes by the number of classes; the released code goes by "
        "the data set's name. A reset also takes back averages and prototypes; with debias, which "
        "was not published with it, prototypes then begin at the source's again."
    )
    plugin: ClassVar[bool] = True
    standalone: ClassVar[bool] = False
    needs_host: ClassVar[bool] = True
    resets: ClassVar[bool] = True
    # No estimate is below 0, and none is 100 below another.
    neutral: ClassVar = {"reset_below": 0.0, "drop": 100.0}
    presets: ClassVar = {"cifar100-c": {"dropout": 0.3}, "imagenet-c": {"dropout": 0.2}}

    dropout: float = setting(
        BY_CLASSES, "share of activations that is dropped", at_least=0.01, at_most=0.99
    )
    views: int = setting(10, "forwards with dropout a batch", at_least=1)
    reset_below: float = setting(
        20.0, "reset when the estimate, in percent, is below this", at_least=0, at_most=100
    )
    drop: float = setting(
        2.0, "reset when the mean estimate fell by more than this", at_least=0, at_most=100
    )
    window: int = setting(5, "batches in each of the two means that are compared", at_least=1)
    masks: Literal["random", "fixed"] = setting(
        "random", "what is dropped: drawn anew each time, or by a fixed rule, for exact tests"
    )
    layers: str = setting(
        "stages",
        "dropout follows these layers, parted by |; stages: each child of the net that holds two "
        "or more norm layers",
    )

    def places(self, network: Network) -> list[str]:
        """Names of the layers that dropout follows."""
        known = [name for name, _ in network.model.named_modules() if name]
        layers = stages(network.model)
        if self.layers != "stages":
            layers = [name for name in self.layers.split("|") if name]
            if missing := [name for name in layers if name not in known]:
                raise ValueError(
                    f"{network.name} has no layer {missing[0]!r} for aetta to put dropout after: "
                    f"name some of {listed(known)}."
                )
        if not layers:
            raise ValueError(
                f"{network.name} has no stages with two or more norm layers to put dropout after: "
                f'name layers, parted by |, as in aetta(layers="{"|".join(known[:2])}").'
            )
        return layers

    def upkeep(self, task: Task) -> list[Upkeep]:
        return [ResetByEstimate(self, task)] if self.has_effect() else []

    def forwards_beside(self) -> tuple[int, int]:
        return (self.views, self.views + 1) if self.has_effect() else (0, 0)
