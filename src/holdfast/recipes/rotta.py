"""RoTTA: learn from a balanced memory of recent images, with slowly moving statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import nn

from holdfast import Learner, register, setting
from holdfast.parts import (
    AUGMENTATIONS,
    AugmentationName,
    ByMixture,
    PlainStep,
    Prediction,
    Select,
    Step,
    StoredTeacher,
    Task,
    Teacher,
    TeacherMemoryStep,
    Term,
    TermResult,
    TimelyMemory,
)


class TimelyAgreement(Term):
    """Mean over the memory of w · CE(teacher on the images, student on their view), where
    w = e^−a / (1 + e^−a) for an age of a: recent images count more."""

    def __init__(self, teacher: Teacher, memory: TimelyMemory):
        super().__init__("teacher")
        self.teacher = teacher
        self.memory = memory

    def forward(self, step: Step) -> TermResult:
        images = step.network.prepare(self.memory.images)
        target = self.teacher(images, record=True).softmax(1)
        ages = [self.memory.age(item) for item in self.memory.items]
        weight = torch.sigmoid(-torch.tensor(ages, dtype=torch.float64)).to(target)
        losses = -(target * step.log_probabilities).sum(1)
        return TermResult((weight * losses).mean(), len(images))


@register("rotta")
@dataclass(frozen=True)
class Rotta(Learner):
    """Agrees with a mean teacher on a balanced memory of images, under robust batch norm.

    L = mean over the memory of w(age) · CE(teacher on x, student on augmented x), every N images
    """

    paper: ClassVar[str] = (
        "Yuan et al. 2023, Robust test-time adaptation in dynamic scenarios, arXiv 2303.13899"
    )
    predicts: ClassVar[str] = "the teacher's logits, by its stored statistics, before the update"
    note: ClassVar[str] = (
        "Takes single images too: batch norm goes by slowly moving statistics, not by the batch. A "
        "step is taken after every so many images, in the middle of a batch too; for batches of "
        "more than `every` images there are several. Plug-ins see the memory's augmented view."
    )
    keeps_samples: ClassVar[bool] = True
    keeps_images: ClassVar[bool] = True
    passes: ClassVar = (0, 1)
    memory: ClassVar[str] = (
        "another copy of the network (the teacher), `capacity` images, and a copy of the state "
        "while a batch is looked at"
    )
    presets: ClassVar = {"cifar100-c": {"lr": 1e-3}}

    lr: float = setting(1e-4)
    optimizer: Literal["sgd", "adam"] = setting("adam")
    capacity: int = setting(64, "images in memory", at_least=1)
    every: int = setting(64, "images between two steps", at_least=1)
    bn_momentum: float = setting(
        0.05, "share of a new batch in the statistics", at_least=0, at_most=1
    )
    teacher_momentum: float = setting(0.999, "share of the old teacher", at_least=0, at_most=1)
    lambda_time: float = setting(1.0, "weight of age in what leaves memory", at_least=0)
    lambda_uncertainty: float = setting(1.0, "weight of entropy in what leaves memory", at_least=0)
    augment: AugmentationName = setting("rotta", "the student's view: rotta's, or a fixed one")

    def selection(self) -> Select:
        return Select(self.select, ByMixture(self.bn_momentum))

    def _memory(self, task: Task) -> TimelyMemory:
        return TimelyMemory(
            self.capacity,
            task.network.classes,
            lambda_time=self.lambda_time,
            lambda_uncertainty=self.lambda_uncertainty,
        )

    def _prediction(self, task: Task) -> StoredTeacher:
        return StoredTeacher(task.teacher)

    def terms(self, task: Task) -> list[Term]:
        return [TimelyAgreement(task.teacher, task.cached(self._memory))]

    def prediction(self, task: Task) -> Prediction:
        return task.cached(self._prediction)

    def learning(self, task: Task, parameters: Mapping[str, nn.Parameter]) -> TeacherMemoryStep:
        return TeacherMemoryStep(
            PlainStep(self.descent(), parameters),
            task.cached(self._memory),
            task.cached(self._prediction),
            self.every,
            augment=task.augment(AUGMENTATIONS[self.augment]),
            teacher=task.teacher,
            teacher_momentum=self.teacher_momentum,
        )

    def forwards(self) -> tuple[int, int]:
        return 1, 3

    def largest_batch(self) -> int:
        return self.every

    def always_drives(self) -> bool:
        return True
