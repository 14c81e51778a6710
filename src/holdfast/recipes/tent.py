"""Tent: minimise the entropy of the predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast import Learner, register, setting
from holdfast.parts import Step, Task, Term, TermResult


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
    tunes: ClassVar = {"lr": (1, 4, 16)}
    groups: ClassVar[bool] = True

    lr: float = setting(1e-4)

    def terms(self, task: Task) -> list[Term]:
        return [Entropy("entropy")]

    def always_drives(self) -> bool:
        return True
