"""RDumb: ETA that goes back to the source at regular intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast import register, setting
from holdfast.parts import ResetEvery, Task, Upkeep
from holdfast.recipes.eata import Eta


@register("rdumb")
@dataclass(frozen=True)
class Rdumb(Eta):
    """ETA, put back to the source after every `reset_every` batches.

    L = mean over kept images of exp(E0 − H)·H;  θ ← θ0 after every N batches
    """

    paper: ClassVar[str] = (
        "Press et al. 2023, RDumb: A simple approach that questions our progress in continual "
        "test-time adaptation, arXiv 2306.05401"
    )
    note: ClassVar[str] = (
        "A reset takes back weights, optimiser state and averages. Every batch counts towards "
        f"it, also one that led to no step. {Eta.note}"
    )
    resets: ClassVar[bool] = True

    # RDumb's E0 is ln(1000)/2 − 1, which is 0.355 ln 1000.
    entropy_factor: float = setting(0.355)
    reset_every: int = setting(1000, "batches between resets", at_least=1)

    def upkeep(self, task: Task) -> list[Upkeep]:
        return [ResetEvery(self.reset_every)]
