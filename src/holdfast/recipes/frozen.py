"""Nothing trains: the source model as it is, and with batch norm by the current batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast import Method, register
from holdfast.parts import ByBatch, Select


@register("frozen")
@dataclass(frozen=True)
class Frozen(Method):
    """The source model as it is, with its own statistics."""

    paper: ClassVar[str] = "the baseline called Source in the tables"
    predicts: ClassVar[str] = "the source model's logits"


@register("bn")
@dataclass(frozen=True)
class Bn(Method):
    """Batch norm layers normalise by the mean and variance of the current batch; nothing trains.

    x̂ = (x − mean of the batch) / sqrt(variance of the batch + ε)
    """

    paper: ClassVar[str] = (
        "Schneider et al. 2020, Improving robustness against common corruptions by covariate shift "
        "adaptation, with no weight on the source's statistics"
    )
    predicts: ClassVar[str] = "the network's logits under batch statistics"

    def selection(self) -> Select:
        return Select("nothing", ByBatch(), renews=True)
