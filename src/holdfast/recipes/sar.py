"""SAR: sharpness-aware entropy minimisation that starts again when entropy gets too low."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from holdfast import Learner, register, setting
from holdfast.parts import (
    EXCLUDE,
    ByBatch,
    Outcome,
    SamStep,
    Select,
    Step,
    Task,
    Term,
    TermResult,
    Upkeep,
)


class ConfidentEntropy(Term):
    """Mean entropy of the reliable images; on the second look, of those that still are."""

    def __init__(self, factor: float):
        super().__init__("entropy")
        self.factor = factor

    def forward(self, step: Step) -> TermResult | None:
        reliable = step.reliable(self.factor)
        if step.before is not None:
            reliable = reliable & step.before.reliable(self.factor)
        chosen = reliable.nonzero().squeeze(1)
        return TermResult(step.entropy[chosen].mean(), len(chosen)) if len(chosen) else None


class ResetBelow(Upkeep):
    """Go back to the source's weights when the average of the entropy falls below a limit.

    The optimiser keeps its state. The average starts anew, or (keep) stays as low as it was.
    """

    def __init__(self, limit: float, keep: bool):
        super().__init__()
        self.limit = limit
        self.keep = keep
        self.average = nn.Buffer(torch.zeros((), dtype=torch.float64))
        self.seen = nn.Buffer(torch.zeros((), dtype=torch.bool))

    def forward(self, outcome: Outcome) -> None:
        loss = outcome.proposal.losses.get("entropy")
        if loss is not None:
            new = loss.to(self.average)
            self.average.copy_(0.9 * self.average + 0.1 * new if self.seen else new)
            self.seen.fill_(True)
        if self.seen and self.average < self.limit:
            outcome.forget(optimizer=False)
            self.seen.fill_(self.keep)


@register("sar")
@dataclass(frozen=True)
class Sar(Learner):
    """Minimises the entropy of reliable images where the loss is flat, and resets itself.

    L = mean over H < E0 of H, at θ + ρ g/‖g‖;  θ ← θ0 when the average of L is below e0
    """

    paper: ClassVar[str] = (
        "Niu et al. 2023, Towards stable test-time adaptation in dynamic wild world, "
        "arXiv 2302.12400"
    )
    predicts: ClassVar[str] = "the adapted network's logits of the first forward"
    note: ClassVar[str] = (
        "With no reliable image the optimiser still steps on a zero gradient, so that momentum "
        "moves the weights. A reset takes weights back, not momentum. The released code also "
        "leaves out a ViT's last blocks and its final norm: name them in exclude, as in "
        'exclude="blocks.9|blocks.10|blocks.11|fc_norm".'
    )
    memory: ClassVar[str] = "a copy of what trains"
    resets: ClassVar[bool] = True
    steps_without_gradient: ClassVar[bool] = True
    backwards: ClassVar[int] = 2
    passes: ClassVar = (1, 2)

    rho: float = setting(0.05, "length of the climb before the gradient is taken", at_least=0)
    entropy_factor: float = setting(0.4, "E0 = this · ln C; reliable: H < E0", at_least=0)
    reset_below: float = setting(0.2, "reset when the average entropy is below this", at_least=0)
    after_reset: Literal["clear", "keep"] = setting(
        "clear", "the average after a reset: begun anew, or kept low as in the released code"
    )
    exclude: str = setting("layer4", EXCLUDE)

    def selection(self) -> Select:
        return Select(self.select, ByBatch(), exclude=self.exclude)

    def terms(self, task: Task) -> list[Term]:
        return [ConfidentEntropy(self.entropy_factor)]

    def learning(self, task: Task, parameters: Mapping[str, nn.Parameter]) -> SamStep:
        return SamStep(self.descent(), parameters, self.rho)

    def upkeep(self, task: Task) -> list[Upkeep]:
        return [ResetBelow(self.reset_below, self.after_reset == "keep")]

    def forwards(self) -> tuple[int, int]:
        return 1, 2
