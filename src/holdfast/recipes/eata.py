"""EATA: entropy of reliable, non-redundant images, with a Fisher anchor; ETA is EATA without it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from holdfast import Learner, register, setting
from holdfast.parts import ReliableEntropy, Step, Task, Term, TermResult
from holdfast.util.settings import ByClasses

PAPER = "Niu et al. 2022, Efficient test-time model adaptation without forgetting, arXiv 2204.02610"

# The published value at 1,000 classes, and as far above the cosine of a sure prediction at others.
BY_CLASSES = ByClasses(
    lambda classes: min(0.05 * math.sqrt(1000 / classes), 0.9), "0.05·√(1000/C), at most 0.9"
)


class FisherAnchor(Term):
    """Σ F (θ − θ0)² over all that trains: it holds, but never drives."""

    drives = False

    def __init__(
        self,
        weight: float,
        parameters: Mapping[str, nn.Parameter],
        information: Mapping[str, Tensor],
    ):
        super().__init__("fisher", weight)
        self.parameters_held = list(parameters.values())
        flat = torch.cat([information[name].reshape(-1) for name in parameters])
        self.information = nn.Buffer(flat, persistent=False)
        self.start = nn.Buffer(self._now().detach().clone(), persistent=False)

    def _now(self) -> Tensor:
        # One flat vector: a handful of kernels, however many layers train.
        return torch.cat([parameter.reshape(-1) for parameter in self.parameters_held])

    def forward(self, step: Step) -> TermResult:
        moved = self._now().to(self.information.dtype) - self.start
        return TermResult((self.information * moved * moved).sum(), len(step.images))


@register("eta")
@dataclass(frozen=True)
class Eta(Learner):
    """EATA without its Fisher anchor: weighted entropy of reliable, non-redundant images.

    L = mean over kept images of exp(E0 − H)·H, kept: H < E0 and |cos(q, p)| < redundancy
    """

    paper: ClassVar[str] = PAPER
    tunes: ClassVar = {"lr": (1, 4, 16)}
    groups: ClassVar[bool] = True
    note: ClassVar[str] = (
        "A sure prediction has a cosine of about 1/√C to an even mean, so that redundancy follows "
        "the number of classes; presets keep the published 0.05, which is meant for 1,000 classes "
        "and drops most images where there are fewer than some 400."
    )
    presets: ClassVar = {
        "cifar100-c": {"redundancy": 0.05},
        "imagenet-c": {"redundancy": 0.05},
    }

    entropy_factor: float = setting(0.4, "E0 = this · ln C; reliable: H < E0", at_least=0)
    redundancy: float = setting(
        BY_CLASSES, "kept: |cos| to the mean prediction below this", at_least=0
    )

    def advice(self, classes: int) -> str | None:
        usual = classes**-0.5
        if self.redundancy > usual:
            return None
        return (
            f"redundancy={self.redundancy:g} drops most images of {classes} classes, since a sure "
            f"prediction has a cosine of about {usual:.2f} to the mean: "
            f"{BY_CLASSES.rule(classes):.2g} suits them, which is the default without a preset"
        )

    def terms(self, task: Task) -> list[Term]:
        rows = task.network.rows
        return [ReliableEntropy(len(rows), self.entropy_factor, self.redundancy, rows)]


@register("eata")
@dataclass(frozen=True)
class Eata(Eta):
    """Weighted entropy of reliable, non-redundant images, anchored to the source by Fisher.

    L = mean over kept images of exp(E0 − H)·H + β Σ F (θ − θ0)²
    """

    memory: ClassVar[str] = "two numbers for each weight that trains"

    fisher_weight: float = setting(2000.0, "β, the weight of the Fisher anchor", at_least=0)
    fisher_samples: int = setting(2000, "images behind the Fisher information", at_least=1)

    def terms(self, task: Task) -> list[Term]:
        terms = super().terms(task)
        if self.fisher_weight:
            information = task.fisher(self.fisher_samples)
            terms.append(FisherAnchor(self.fisher_weight, task.parameters, information))
        return terms

    def needs(self) -> tuple[str, ...]:
        return ("fisher",) if self.fisher_weight else ()
