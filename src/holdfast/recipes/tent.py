"""Tent: minimise the entropy of the predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.engine.step import Step
from holdfast.parts.task import Task
from holdfast.parts.terms import Term, TermResult
from holdfast.recipes.base import Learner
from holdfast.recipes.registry import register
from holdfast.util.settings import setting


class Entropy(Term):
    """Mean softmax entropy over the whole batch."""

    def forward(self, step: Step) -> TermResult:
        return TermResult(step.entropy.mean(), len(step.images))


@register("tent")
@dataclass(frozen=True)
class Tent(Learner):
    """Minimises the mean entropy of its predictions over the whole batch.

    L = mean of H, H = −Σ p log p
    """

    paper: ClassVar[str] = (
        "Wang et al. 2021, Tent: Fully test-time adaptation by entropy minimization, "
        "arXiv 2006.10726"
    )
    lr: float = setting(1e-4, "learning rate", at_least=0)

    def terms(self, task: Task) -> list[Term]:
        return [Entropy("entropy")]

    def always_drives(self) -> bool:
        return True
