"""Batch norm by the current batch, alone or mixed with what is known before it; nothing trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from holdfast import Method, register, setting
from holdfast.parts import ByBatch, ByBlend, ByRunning, Normalisation, Select


@register("bn")
@dataclass(frozen=True)
class Bn(Method):
    """Batch norm layers normalise by the mean and variance of the current batch; nothing trains.

    x̂ = (x − μ) / sqrt(σ² + ε), μ and σ² those of the batch, or (1 − alpha)·source + alpha·batch
    """

    paper: ClassVar[str] = (
        "Schneider et al. 2020, Improving robustness against common corruptions by covariate shift "
        "adaptation: with no weight on the source's statistics, or with `prior` images' weight"
    )
    note: ClassVar[str] = (
        "With alpha or prior, single images are served without a window (in holdfast run, window "
        "0), and the batch's variance is the unbiased one: alpha=1 is not quite bn. The released "
        "code of prior takes n from the configured batch size, this the images that are there. "
        "bn(prior=…) mixes statistics; bn+prior is something else: a plug-in that corrects the "
        "output. statistics=running is a moving average that begins at the source's, 0.9·old + "
        "0.1·batch; its first forward is by the batch, the second predicts."
    )
    predicts: ClassVar[str] = "the network's logits under batch statistics"
    groups: ClassVar[bool] = True

    alpha: float | None = setting(
        None, "share of the batch in the statistics, beside the source's", at_least=0, at_most=1
    )
    prior: float | None = setting(
        None, "N: for n images, the source's share is N/(N + n), as if of N images", at_least=0
    )
    statistics: Literal["batch", "running"] = setting(
        "batch", "by the batch, or by running averages that the batch has gone into"
    )

    def conflict(self) -> str | None:
        both = [name for name in ("alpha", "prior") if name in self.given]
        if len(both) == 2:
            return (
                "bn: alpha and prior both say how much the source's statistics count: write "
                "bn(alpha=0.1), or bn(prior=16)."
            )
        if both and self.statistics == "running":
            return (
                f"bn: statistics=running has no use for {both[0]}: write bn(statistics=running), "
                f"or bn({both[0]}={getattr(self, both[0]):g})."
            )
        return None

    def selection(self) -> Select:
        by: Normalisation = ByBatch()
        if self.statistics == "running":
            by = ByRunning()
        elif self.alpha is not None or self.prior is not None:
            by = ByBlend(self.alpha, self.prior)
        return Select("nothing", by, renews=True)

    def predicts_after(self) -> bool:
        return self.statistics == "running"

    def predicting(self) -> str:
        if self.statistics == "running":
            return "the network's logits under running statistics that the batch has gone into"
        mixed = self.alpha is not None or self.prior is not None
        return "the network's logits under mixed statistics" if mixed else self.predicts

    def forwards(self) -> tuple[int, int]:
        count = 2 if self.statistics == "running" else 1
        return count, count
