"""Batch norm by the statistics of the current batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast import Method, register
from holdfast.parts import ByBatch, Select


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
