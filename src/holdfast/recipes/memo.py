"""MEMO: each image by itself, from the source on: views of it are to agree, and then it is
predicted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor, nn

from holdfast import Learner, register, setting
from holdfast.parts import (
    AUGMENTATIONS,
    Augment,
    AugmentationName,
    ByBlend,
    Select,
    Step,
    Task,
    Term,
    TermResult,
    View,
    ViewStep,
)
from holdfast.recipes.base import ALONE, CompositionContext

if TYPE_CHECKING:
    from typing_extensions import Self


class Views(View):
    """So many views of the one image, as one batch; it is not one of them itself."""

    def __init__(self, augment: Augment, count: int):
        super().__init__()
        self.augment = augment
        self.count = count

    def check(self, images: Tensor) -> None:
        self.augment.check(images)

    def forward(self, step: Step) -> Step:
        return step.view(self.made(step.images))

    def made(self, image: Tensor) -> Tensor:
        if self.augment.kind.random:  # all at once, each by a draw of its own
            views: Tensor = self.augment(image.expand(self.count, *image.shape[1:]))
            return views
        return torch.cat([self.augment(image, ahead=number) for number in range(self.count)])

    def commit(self, seen: Step) -> None:
        self.augment.commit(self.count)


class MarginalEntropy(Term):
    """Entropy of the mean of all views' predictions."""

    def forward(self, step: Step) -> TermResult:
        log_mean = step.log_probabilities.logsumexp(0) - math.log(len(step.images))
        return TermResult(-(log_mean.exp() * log_mean).sum(), 1)


@register("memo")
@dataclass(frozen=True)
class Memo(Learner):
    """Minimises the entropy of the mean prediction over views of one image, for each image anew.

    L = H(mean over N views of p); θ ← θ0 before each image, which is predicted after the step
    """

    paper: ClassVar[str] = (
        "Zhang, Levine, Finn 2022, MEMO: Test time robustness via adaptation and augmentation, "
        "arXiv 2110.09506"
    )
    predicts: ClassVar[str] = "the adapted network's logits of the image as it is, after the update"
    note: ClassVar[str] = (
        "Nothing is learnt from one image to the next, so that predict() and frozen() go by the "
        "source's weights, under mixed statistics; a batch of B images costs B times as much, "
        "each time on all views at once. "
        "Batch norm mixes the source's statistics with those of an image's views, or of the image, "
        "as if of one image, however many views there are. Defaults and presets step as Döbler's "
        "collection does, by Nesterov's momentum, which after a fresh start is 1.9·lr·g; the "
        "authors' own step is lr·g: momentum=0. That collection mixes by alpha=0.1; the authors' "
        "prior=16, a share of 1/17, is the default. Their CIFAR net has GroupNorm, where nothing "
        "is mixed. Plug-ins see the views; debias, which was not published with it, draws their "
        "features to the source's prototypes, and its own prototypes are the head's rows for each "
        "image anew."
    )
    memory: ClassVar[str] = (
        "activations of all views of one image, and a copy of the state while a batch is looked at"
    )
    presets: ClassVar = {"cifar100-c": {"lr": 0.005, "views": 32}}

    nesterov: bool = setting(True)
    select: Literal["norm", "body", "all"] = setting("all")
    views: int = setting(64, "augmented views of an image", at_least=1)
    prior: float | None = setting(
        16.0, "N: the source's share in batch norm's statistics is N/(N + 1)", at_least=0
    )
    alpha: float | None = setting(
        None, "share of the views in the statistics, instead of prior", at_least=0, at_most=1
    )
    steps: int = setting(1, "updates before an image is predicted", at_least=1)
    augment: AugmentationName = setting(
        "augmix", "how views are made: augmix's, or a fixed one, called once a view"
    )

    def conflict(self) -> str | None:
        if self.alpha is None or self.prior is None:
            return None
        return (
            "memo: alpha and prior both say how much the source's statistics count: write "
            f"memo(alpha={self.alpha:g}), or memo(prior={self.prior:g})."
        )

    def resolved(self, context: CompositionContext = ALONE) -> Self:
        resolved = super().resolved(context)
        return resolved if self.alpha is None else replace(resolved, prior=None)

    def selection(self) -> Select:
        alpha = self.alpha if self.prior is None else 1 / (self.prior + 1)
        return Select(self.select, ByBlend(alpha, each=True))

    def terms(self, task: Task) -> list[Term]:
        return [MarginalEntropy("marginal")]

    def learning(self, task: Task, parameters: Mapping[str, nn.Parameter]) -> ViewStep:
        views = Views(task.augment(AUGMENTATIONS[self.augment]), self.views)
        return ViewStep(self.descent(), parameters, views)

    def episode_steps(self) -> int:
        return self.steps

    def predicts_after(self) -> bool:
        return True

    def always_drives(self) -> bool:
        return True

    def forwards(self) -> tuple[int, int]:
        return self.steps + 1, self.steps + 1
