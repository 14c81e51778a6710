"""RPL: a robust loss on the network's own labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from holdfast import Learner, register, setting
from holdfast.parts import Step, Task, Term, TermResult


class RobustLabels(Term):
    """Mean of (1 − p_ŷ^q)/q over the whole batch, ŷ being the predicted class."""

    def __init__(self, q: float):
        super().__init__("robust")
        self.q = q

    def forward(self, step: Step) -> TermResult:
        own = step.log_probabilities.gather(1, step.labels[:, None])
        # Exact for a small q too, where p^q is close to 1.
        return TermResult(-torch.expm1(self.q * own).mean() / self.q, len(step.images))


@register("rpl")
@dataclass(frozen=True)
class Rpl(Learner):
    """Learns its own predicted classes by a loss in which unsure ones, often wrong, weigh less.

    L = mean of (1 − p_ŷ^q)/q, ŷ = arg-max; q → 0 is cross-entropy, q = 1 is 1 − p_ŷ
    """

    paper: ClassVar[str] = (
        "Rusak et al. 2022, If your data distribution shifts, use self-learning, arXiv 2104.12928"
    )
    note: ClassVar[str] = (
        "Repositories disagree: defaults and presets are those of mariodoebler's collection, with "
        "Nesterov; CCC's has none (nesterov=false); its authors' example trains all weights "
        "without momentum, at 7.5e-4, for five epochs. It was not published with debias, which "
        "draws its own reliable images (H < entropy_factor · ln C): on these, its terms join a "
        "step that RPL takes on every image anyway."
    )
    presets: ClassVar = {"cifar100-c": {"optimizer": "adam", "lr": 1e-3}}
    groups: ClassVar[bool] = True

    lr: float = setting(5e-4)
    nesterov: bool = setting(True)
    q: float = setting(
        0.8, "how little unsure images weigh; near 0: as in cross-entropy", at_least=1e-6, at_most=1
    )

    def terms(self, task: Task) -> list[Term]:
        return [RobustLabels(self.q)]

    def always_drives(self) -> bool:
        return True
