"""steady: batch statistics that follow the evidence, so that adapting does no harm where nothing
drifts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast import Method, register, setting
from holdfast.parts import ByBatch, BySteady, Normalisation, Select, Task

# How hosts that may go by the batch are made to.
BY_BATCH = {
    "bn": "bn",
    "lame": "bn+lame",
    "note": "note(statistics=batch,iabn=false)",
    "shift": "shift(statistics=batch)",
    "t3a": "t3a(statistics=batch)",
    "ttac": "ttac(predict=before)",
}


@register("steady")
@dataclass(frozen=True)
class Steady(Method):
    """Batch norm follows a batch as far as it lies beyond what source batches do, layer by layer.

    μ = μ_s + α (m − μ_s), σ², γ, β alike; α = max(0, 1 − L/D), D: drift, L: that of source batches
    """

    paper: ClassVar[str] = (
        "holdfast's own: positive-part James–Stein, against the source's own range"
    )
    note: ClassVar[str] = (
        "Where nothing drifts, the source model predicts, for batches of any size. D leaves out "
        "most of what labels explain: the eight directions in which classes differ most. L is of "
        "random, label-skewed or sorted source batches, the largest; a layer's α is at least 0.75 "
        "times the mean of those before it. Two kinds of image in one batch, such as intruders, go "
        "each by their own statistics, where the batch lies beyond L as a whole. On a host "
        "that trains more than norm layers (cotta, rmt, select=all), those weights are as the "
        "host left them, also then. Fisher information is made by plain batch statistics. Budgets "
        "are of the first 3,000 source images, labelled and not augmented; of fewer than about "
        "1,000 they are too narrow."
    )
    predicts: ClassVar[str] = "the network's logits under these statistics"
    plugin: ClassVar[bool] = True
    groups: ClassVar[bool] = True
    standalone: ClassVar[bool] = False
    needs_steps: ClassVar[bool] = False
    serves_single: ClassVar[bool] = True
    neutral: ClassVar = None

    skew: float = setting(
        0.1,
        "Dirichlet parameter of label-skewed source batches: below, classes cluster more",
        at_least=0.001,
    )
    quantile: float = setting(
        0.95,
        "share of source batches that count as no drift; of sorted ones more",
        at_least=0,
        at_most=1,
    )
    split: bool = setting(True, "normalise two kinds of image in one batch apart, where it drifts")

    def selection(self) -> Select:
        return Select("nothing", ByBatch(), renews=True)

    def objection(self, host: Method | None) -> str | None:
        if host is None or isinstance(host.selection().statistics, ByBatch):
            return None
        hosts = dict.fromkeys([BY_BATCH.get(host.name, "eata"), "bn"])
        return (
            f"{host.name} does not normalise by the batch's statistics alone here, which are what "
            f"steady replaces: write {', or '.join(f'{other}+steady' for other in hosts)}."
        )

    def normalisation(self, task: Task, by: Normalisation) -> Normalisation:
        BySteady.check(task.network)
        budgets = task.budgets(skew=self.skew, quantile=self.quantile)
        return BySteady(budgets, self.split, str(self))

    def needs(self) -> tuple[str, ...]:
        return ("budgets",)
