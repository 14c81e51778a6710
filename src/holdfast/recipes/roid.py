"""ROID: certain and diverse predictions, weights that stay near the source, a corrected prior."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from holdfast import Learner, register, setting
from holdfast.parts import AUGMENTATIONS, AugmentationName, Refine, Settle, Task, Term
from holdfast.parts.diverse import DiverseWeights, LikelihoodRatio, ViewAgreement
from holdfast.recipes.ensemble import SourcePull
from holdfast.recipes.prior import LogitCorrection, ProbabilityCorrection

CORRECTIONS: Mapping[str, type[Refine]] = {
    "logits": LogitCorrection,
    "probabilities": ProbabilityCorrection,
}

NOTE = (
    "What leaves under correct=logits, as released, are scores to take the largest of: their "
    "softmax are no probabilities. Confidence, entropy and calibration in runs and in "
    "adapter.health are those of the logits before the correction (adapter.last.uncorrected, "
    "adapter.answer). correct=probabilities gives log-probabilities instead. "
    "frozen(statistics='batch') corrects each batch; frozen() serves single images and does not. "
    "The second forward sees only the images that count; where that is one alone and batch norm "
    "goes by the batch, it is left out. Images that are all equal weigh 1 each, and none is left "
    "out (the released code divides 0 by 0). divisor=actual divides by the images of the batch; "
    "the released code divides by the configured batch size, so that a smaller last batch takes a "
    "smaller step: divisor=configured, for which the largest batch so far stands. weighting=false "
    "counts every image 1. With debias, which was not published with it: R are the images with "
    "H < E0, whatever weight they have here; its terms are added beside the two losses, unweighted "
    "by w, and drive as these do; and the way back to the source after each step takes what they "
    "moved along."
)


@dataclass(frozen=True)
class Diverse(Learner):
    """What ROID and CMF share: their losses, and the correction of what leaves."""

    backwards: ClassVar[int] = 1
    groups: ClassVar[bool] = True
    tunes: ClassVar = {"lr": (1, 4)}
    presets: ClassVar = {"cifar100-c": {"optimizer": "adam", "lr": 1e-3}}

    nesterov: bool = setting(True)
    weighting: bool = setting(True, "weigh images by certainty and diversity; false: all count 1")
    weight_consistency: float = setting(
        1.0, "weight of the agreement with a new view; 0 leaves it out", at_least=0
    )
    class_momentum: float = setting(
        0.9, "share of the old average prediction", at_least=0, at_most=1
    )
    temperature: float = setting(1 / 3, "T in exp(a·b/T)", at_least=1e-6)
    correct: Literal["logits", "probabilities", "none"] = setting(
        "logits", "what the prior of the batch corrects", switch=("logits", "none")
    )
    divisor: Literal["actual", "configured"] = setting(
        "actual", "losses are divided by this batch's size, or the largest batch's so far"
    )
    augment: AugmentationName = setting("roid", "the new view: roid's, or a fixed one")

    def terms(self, task: Task) -> list[Term]:
        weights = DiverseWeights(
            task.network.rows,
            weighs=self.weighting,
            momentum=self.class_momentum,
            temperature=self.temperature,
            largest=self.divisor == "configured",
        )
        found: list[Term] = [LikelihoodRatio(weights)]
        if self.weight_consistency:
            augment = task.augment(AUGMENTATIONS[self.augment])
            found.append(ViewAgreement(self.weight_consistency, weights, augment))
        return found

    def refine(self, task: Task) -> list[Refine]:
        return [CORRECTIONS[self.correct]()] if self.correct != "none" else []

    def keeps_probabilities(self) -> bool:
        return self.correct != "logits"

    def predicting(self) -> str:
        corrected = "" if self.correct == "none" else f", {self.correct} corrected by the prior"
        return self.predicts + corrected

    def holds(self) -> Mapping[str, str]:
        return {"prior": "correct=false"} if self.correct != "none" else {}

    def always_drives(self) -> bool:
        return True

    def can_group(self) -> bool:
        return not self.weight_consistency  # a view is one more forward of a stream's own

    def forwards(self) -> tuple[int, int]:
        return (1, 2) if self.weight_consistency else (1, 1)


@register("roid")
@dataclass(frozen=True)
class Roid(Diverse):
    """Makes sure and diverse predictions surer and stable under a new view, near the source.

    L = Σ w (−Σ r ln(r/(1−r)) + SCE(p, p′))/B, w = exp(a·b/T);  θ ← m θ + (1 − m) θ0;  z ← z · prior
    """

    paper: ClassVar[str] = (
        "Marsden, Döbler, Yang 2024, Universal test-time adaptation through weight ensembling, "
        "diversity weighting, and prior correction, arXiv 2306.00650"
    )
    note: ClassVar[str] = (
        "roid(source_momentum=1,correct=false)+ensemble+prior is the same, part by part. " + NOTE
    )
    memory: ClassVar[str] = "a copy of what trains, and the activations of the images that count"

    source_momentum: float = setting(
        0.99, "share of the adapted weights after a step; 1: no ensembling", at_least=0, at_most=1
    )

    def settling(self, task: Task) -> list[Settle]:
        if self.source_momentum == 1:
            return []
        return [SourcePull(task.parameters.values(), self.source_momentum)]

    def holds(self) -> Mapping[str, str]:
        pulls = {"ensemble": "source_momentum=1"} if self.source_momentum != 1 else {}
        return {**super().holds(), **pulls}
