"""Contrast to source prototypes, through a projector that trains along: of RMT and SANTA."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from holdfast.engine.step import Step
from holdfast.parts.augment import Augment
from holdfast.parts.task import Task
from holdfast.parts.terms import Term, TermResult

PROJECTED = 128


class Contrastive(Term):
    """Draws each image, its view and its nearest source prototype together, and apart from those of
    all other images, after a projection. Labels are not used: the same prototype, next to another
    image, is held apart too.

    view: the step of the images' view.
    augment: what makes views, if no other term is there to keep count of them.
    """

    def __init__(
        self,
        task: Task,
        view: Callable[[Step], Step],
        temperature: float,
        weight: float,
        augment: Augment | None = None,
    ):
        super().__init__("contrastive", weight)
        self.view = view
        self.temperature = temperature
        self.augment = augment
        prototypes, known = task.prototypes("batch")
        self.prototypes = nn.Buffer(prototypes[known], persistent=False)
        first = (prototypes.shape[1], PROJECTED)
        with task.draws.scope():
            self.projector = nn.Sequential(
                nn.Linear(*first), nn.ReLU(), nn.Linear(PROJECTED, PROJECTED)
            ).to(prototypes)

    def forward(self, step: Step) -> TermResult:
        features = step.features
        with torch.no_grad():
            directions = nn.functional.normalize(self.prototypes, dim=1)
            nearest = (nn.functional.normalize(features, dim=1) @ directions.T).argmax(1)
        three = [self.prototypes[nearest], features, step.cached(self.view).features]
        points = nn.functional.normalize(self.projector(torch.cat(three)), dim=1)
        similarity = points @ points.T / self.temperature
        itself = torch.eye(len(points), dtype=torch.bool, device=points.device)
        log_share = similarity.masked_fill(itself, -torch.inf).log_softmax(1)
        image = torch.arange(len(features), device=points.device).repeat(3)
        positive = (image[:, None] == image[None, :]) & ~itself
        commit = None if self.augment is None else self.augment.commit
        return TermResult(-log_share[positive].mean(), len(features), commit)
