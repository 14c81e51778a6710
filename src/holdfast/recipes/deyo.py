"""DeYO: entropy of images whose prediction hangs on the shape of what they show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from holdfast import Learner, register, setting
from holdfast.parts import (
    DESTROYED,
    EXCLUDE,
    Augment,
    ByBatch,
    Select,
    Step,
    Task,
    Term,
    TermResult,
    occlude,
)


class ShapeEntropy(Term):
    """Weighted mean entropy of the images that are reliable, and that the network is less sure of
    once their shape is destroyed."""

    def __init__(self, method: Deyo, augment: Augment):
        super().__init__("entropy")
        self.method = method
        self.augment = augment

    def forward(self, step: Step) -> TermResult | None:
        reliable = step.chosen(self.method.entropy_factor)
        if not len(reliable):
            return None
        drop = self._drop(step, reliable)
        enough = drop > self.method.threshold
        chosen = reliable[enough]
        if not len(chosen):
            return None
        entropy = step.entropy[chosen]
        weight = self._weight(entropy.detach(), drop[enough], step.logits.shape[1])
        return TermResult((weight * entropy).mean(), len(chosen), self.augment.commit)

    def _drop(self, step: Step, reliable: Tensor) -> Tensor:
        """PLPD: by how much the probability of the predicted class falls."""
        images = self.augment(step.images[reliable])
        if len(images) == 1 and step.network.by_batch:
            # Alone it would be normalised by the source's statistics; twice, it is by its own.
            images = torch.cat([images, images])
        view = step.view(images, of=reliable, learning=False)
        label = step.labels[reliable][:, None]
        before = step.detached_probabilities[reliable].gather(1, label)
        after = view.probabilities[: len(reliable)].gather(1, label)
        return (before - after).squeeze(1)

    def _weight(self, entropy: Tensor, drop: Tensor, classes: int) -> Tensor:
        method, weight = self.method, torch.zeros_like(drop)
        if not (method.weight_entropy or method.weight_plpd):
            return torch.ones_like(drop)
        if method.weight_entropy:
            weight += (method.margin_factor * math.log(classes) - entropy).exp()
        if method.weight_plpd:
            weight += drop.exp()
        return weight


@register("deyo")
@dataclass(frozen=True)
class Deyo(Learner):
    """Minimises the entropy of images whose prediction hangs on the shape of what they show.

    L = mean of (exp(E − H) + exp(PLPD))·H over H < τ and PLPD > threshold; PLPD = p_ŷ(x) − p_ŷ(x′)
    """

    paper: ClassVar[str] = (
        "Lee et al. 2024, Entropy is not enough for test-time adaptation: from the perspective of "
        "disentangled factors, arXiv 2403.07366"
    )
    note: ClassVar[str] = (
        "x′ is a destroyed copy of the reliable images alone, normalised by themselves. Defaults "
        "and presets are those of mariodoebler's collection; the authors' own code has "
        "threshold=0.3 for ResNet-50 with batch norm on ImageNet-C (0.5 on Waterbirds) and no "
        "Nesterov (nesterov=false), and nothing for CIFAR. Its filters are switched off by "
        "entropy_factor=2 and threshold=-1. It was not published with debias, which draws its own "
        "reliable images (H < entropy_factor · ln C, whatever PLPD), so that a step is also taken "
        "on batches of which DeYO kept none."
    )
    memory: ClassVar[str] = "the activations of the reliable images' forward, without a graph"
    tunes: ClassVar = {"lr": (1, 4)}
    presets: ClassVar = {"cifar100-c": {"optimizer": "adam", "lr": 1e-3}}

    nesterov: bool = setting(True)
    entropy_factor: float = setting(0.5, "τ = this · ln C; reliable: H < τ", at_least=0)
    margin_factor: float = setting(0.4, "E = this · ln C, in the weight exp(E − H)", at_least=0)
    threshold: float = setting(0.2, "kept: PLPD above this", at_least=-2, at_most=1)
    weight_entropy: bool = setting(True, "exp(E − H) is a part of the weight")
    weight_plpd: bool = setting(True, "exp(PLPD) is a part of the weight; without both it is 1")
    exclude: str = setting("layer4", EXCLUDE)
    augment: Literal["patch", "pixel", "occlude", "flip", "none"] = setting(
        "patch",
        "how x′ is destroyed: 4×4 patches shuffled in each image, pixels shuffled alike in all, a "
        "square filled; or a fixed view",
    )
    size: int = setting(0, "side of occlude's square in pixels; 0: half the image's", at_least=0)
    row: int = setting(-1, "its first row; -1: at a quarter of the height", at_least=-1)
    column: int = setting(-1, "its first column; -1: at a quarter of the width", at_least=-1)

    def conflict(self) -> str | None:
        unset = {"size": 0, "row": -1, "column": -1}
        used = [name for name in unset if getattr(self, name) not in (None, unset[name])]
        if not used or self.augment == "occlude":
            return None
        return (
            f"deyo: {used[0]} is of the square that augment=occlude fills: write "
            f"deyo(augment=occlude,{used[0]}={getattr(self, used[0])}), or leave it out."
        )

    def selection(self) -> Select:
        return Select(self.select, ByBatch(), exclude=self.exclude)

    def terms(self, task: Task) -> list[Term]:
        square = self.augment == "occlude"
        kind = occlude(self.size, self.row, self.column) if square else DESTROYED[self.augment]
        return [ShapeEntropy(self, task.augment(kind))]

    def forwards(self) -> tuple[int, int]:
        return 1, 2
