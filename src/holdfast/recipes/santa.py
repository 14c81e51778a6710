"""SANTA: stay near what the source model says, and contrast to source prototypes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast import Learner, register, setting
from holdfast.parts import (
    AUGMENTATIONS,
    Augment,
    AugmentationName,
    Contrastive,
    Network,
    Step,
    Task,
    Term,
    TermResult,
)


class SourceAnchor(Term):
    """−½ Σ p ln p_a − ½ Σ p′ ln p_a: the images and their view, weighed by what the source model
    says of the images. Its minimum is to be sure of the anchor's class."""

    def __init__(
        self, anchor: Network, view: Callable[[Step], Step], augment: Augment, weight: float
    ):
        super().__init__("anchor", weight)
        self.anchor = anchor
        self.view = view
        self.augment = augment

    @torch.no_grad()
    def target(self, step: Step) -> Tensor:
        return Step(self.anchor, step.images, newest=step.newest).log_probabilities

    def forward(self, step: Step) -> TermResult:
        both = step.probabilities + step.cached(self.view).probabilities
        loss = -0.5 * (both * self.target(step)).sum(1).mean()
        return TermResult(loss, len(step.images), self.augment.commit)


@register("santa")
@dataclass(frozen=True)
class Santa(Learner):
    """Keeps to the source model's classes, and contrasts features with source prototypes.

    L = λ_a · mean of −½ Σ p ln p_a − ½ Σ p′ ln p_a + λ_c · contrast; p′: a view, p_a: the source
    """

    paper: ClassVar[str] = (
        "Chakrabarty et al. 2023, SANTA: Source anchoring network and target alignment for "
        "continual test time adaptation"
    )
    trains_also: ClassVar[str] = ", and a projector of its own"
    note: ClassVar[str] = (
        "Its own repository holds no code: this follows the version that was contributed to "
        "mariodoebler's collection, with Nesterov. p_a are the source model's weights under batch "
        "statistics. The contrast and its projector are RMT's, the projector drawn anew for every "
        "adapter. It was not published with debias, which draws its own reliable images (H < "
        "entropy_factor · ln C) and holds features to source prototypes by the source's "
        "statistics, where the contrast takes those by batch statistics."
    )
    memory: ClassVar[str] = (
        "another copy of the network (the source), a prototype a class, and the activations of "
        "three forwards: images, their view, images through the source"
    )
    presets: ClassVar = {"cifar100-c": {"optimizer": "adam", "lr": 1e-3}}

    lr: float = setting(0.01)
    nesterov: bool = setting(True)
    temperature: float = setting(0.1, "divides the similarities of the contrast", at_least=1e-6)
    weight_anchor: float = setting(1.0, "λ_a; 0 leaves the anchor out", at_least=0)
    weight_contrastive: float = setting(1.0, "λ_c; 0 leaves the contrast out", at_least=0)
    augment: AugmentationName = setting("cotta", "the view: cotta's, or a fixed one")

    def terms(self, task: Task) -> list[Term]:
        augment = task.augment(AUGMENTATIONS[self.augment])

        def view(step: Step) -> Step:
            return step.view(augment(step.images))

        terms: list[Term] = []
        if self.weight_anchor:
            terms.append(SourceAnchor(task.anchor, view, augment, self.weight_anchor))
        if self.weight_contrastive:
            weight, counts = self.weight_contrastive, None if terms else augment
            terms.append(Contrastive(task, view, self.temperature, weight, counts))
        return terms

    def needs(self) -> tuple[str, ...]:
        return ("prototypes",) if self.weight_contrastive else ()

    def always_drives(self) -> bool:
        return self.weight_anchor > 0 or self.weight_contrastive > 0

    def forwards(self) -> tuple[int, int]:
        count = 1 + self.always_drives() + (self.weight_anchor > 0)
        return count, count
