"""RMT: a mean teacher with a symmetric loss, contrast to source prototypes, and replay."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from holdfast import Learner, register, setting
from holdfast.parts import (
    AUGMENTATIONS,
    Augment,
    AugmentationName,
    ByBatch,
    Contrastive,
    Export,
    Learn,
    MeanTeacher,
    PlainStep,
    Predicted,
    Prediction,
    Step,
    Task,
    Term,
    TermResult,
    Upkeep,
    logits_of,
    symmetric_cross_entropy,
)
from holdfast.source.loaders import Replay
from holdfast.util.files import check_alike
from holdfast.util.progress import progress

# Seconds between two times that the warm-up's state is put aside.
KEEP_EVERY = 30.0


class SumPrediction(Prediction):
    """The sum of the student's and the teacher's logits."""

    def __init__(self, task: Task):
        super().__init__(task.network)
        self.mean_teacher = task.teacher

    def teacher(self, step: Step) -> Tensor:
        return self.mean_teacher(step.images, record=step.record)

    def forward(self, step: Step) -> Predicted:
        return Predicted(step.logits.detach() + step.cached(self.teacher))

    def module(self, export: Export, exact: bool) -> nn.Module:
        return Sum(export(self.network), export(self.mean_teacher.network))


class Sum(nn.Module):
    """The sum of two classifiers' logits."""

    def __init__(self, student: nn.Module, teacher: nn.Module):
        super().__init__()
        self.student = student
        self.teacher = teacher

    def forward(self, images: Tensor) -> Tensor:
        return logits_of(self.student(images)) + logits_of(self.teacher(images))


class SelfTraining(Term):
    """Symmetric CE to the teacher, half of it for the images and half for an augmented view."""

    def __init__(self, teacher: Callable[[Step], Tensor], augment: Augment):
        super().__init__("teacher")
        self.teacher = teacher
        self.augment = augment

    def view(self, step: Step) -> Step:
        return step.view(self.augment(step.images))

    def forward(self, step: Step) -> TermResult:
        target = step.cached(self.teacher)
        plain = symmetric_cross_entropy(step.logits, target)
        augmented = symmetric_cross_entropy(step.cached(self.view).logits, target)
        return TermResult(
            (0.5 * plain + 0.5 * augmented).mean(), len(step.images), self.augment.commit
        )


class SourceReplay(Term):
    """CE on one labelled source batch, the next one of the loader each time."""

    def __init__(self, weight: float, replay: Replay, start: int):
        super().__init__("replay", weight)
        self.replay = replay
        self.position = nn.Buffer(torch.tensor(start))

    def forward(self, step: Step) -> TermResult:
        images, labels = self.replay[int(self.position)]
        loss = nn.functional.cross_entropy(step.view(images).logits, labels)
        return TermResult(loss, len(images), self._go_on)

    def _go_on(self) -> None:
        self.position.add_(1)


@register("rmt")
@dataclass(frozen=True)
class Rmt(Learner):
    """Agrees with a mean teacher, contrasts with source prototypes, and replays source images.

    L = ½ SCE(z, z') + ½ SCE(z of a view, z') + λ_c · contrast + λ_r · CE on labelled source images
    """

    paper: ClassVar[str] = (
        "Döbler et al. 2023, Robust mean teacher for continual and gradual test-time adaptation, "
        "arXiv 2211.13081"
    )
    predicts: ClassVar[str] = "the sum of student's and teacher's logits, before the update"
    trains_also: ClassVar[str] = ", and a projector of its own"
    note: ClassVar[str] = (
        "Before the stream it warms up on source batches, at a rate that rises from 0 to lr; the "
        "result is kept in the source. Replay takes the loader's batches in its order: let it "
        "shuffle. Soon after a change of domain all weights move fast, and the statistics that "
        "frozen() writes lag a step behind (with debias, 3.2 points below predict after 8 batches "
        "of contrast on glyphs-c): give it calibrate=…, recent batches."
    )
    memory: ClassVar[str] = (
        "another copy of the network (the teacher), and the activations of three forwards: images, "
        "their view, source images"
    )
    presets: ClassVar = {"cifar100-c": {"optimizer": "adam", "lr": 1e-4, "nesterov": False}}

    lr: float = setting(0.01)
    nesterov: bool = setting(True)
    select: Literal["norm", "body", "all"] = setting("all")
    teacher_momentum: float = setting(0.999, "share of the old teacher", at_least=0, at_most=1)
    temperature: float = setting(0.1, "divides the similarities of the contrast", at_least=1e-6)
    weight_contrastive: float = setting(1.0, "λ_c; 0 leaves the contrast out", at_least=0)
    weight_replay: float = setting(1.0, "λ_r; 0 leaves replay out", at_least=0)
    warmup_samples: int = setting(50_000, "source images of the warm-up; 0: none", at_least=0)
    augment: AugmentationName = setting("cotta", "the student's view: cotta's, or a fixed one")

    def terms(self, task: Task) -> list[Term]:
        augment = task.augment(AUGMENTATIONS[self.augment])
        agreement = SelfTraining(task.cached(SumPrediction).teacher, augment)
        terms: list[Term] = [agreement]
        if self.weight_contrastive:
            weight = self.weight_contrastive
            terms.append(Contrastive(task, agreement.view, self.temperature, weight))
        if self.weight_replay:
            terms.append(SourceReplay(self.weight_replay, task.replay, self._steps(task)))
        return terms

    def prediction(self, task: Task) -> Prediction:
        return task.cached(SumPrediction)

    def upkeep(self, task: Task) -> list[Upkeep]:
        return [MeanTeacher(task.teacher, self.teacher_momentum)]

    def _steps(self, task: Task) -> int:
        """How many batches the warm-up takes."""
        if not self.warmup_samples:
            return 0
        if self.warmup_samples < task.batch_size:
            raise ValueError(
                f"warmup_samples={self.warmup_samples} is less than one batch of the source's "
                f"loader, {task.batch_size} images: raise it, or leave the warm-up out with 0."
            )
        return self.warmup_samples // task.batch_size

    def prepare(self, task: Task, learn: Learn | None) -> None:
        """The warm-up: SCE(student, teacher) on source batches, while the rate rises to lr."""
        steps = self._steps(task)
        if not steps or not isinstance(learn, PlainStep):
            return
        state = {f"student/{name}": p.detach() for name, p in task.parameters.items()}
        state |= {f"teacher/{name}": p for name, p in task.teacher.parameters.items()}
        of_network = tuple(f"{name}." for name in task.parameters)
        state |= {
            f"optimizer/{n}": t for n, t in learn.tensors().items() if n.startswith(of_network)
        }
        state["steps"] = torch.tensor(0)
        by = task.normalisation
        normalised = "" if by == ByBatch() else f", {by}"
        work = task.work(
            f"RMT warm-up: {steps} steps, {self.descent()}, select={self.select}, "
            f"teacher_momentum={self.teacher_momentum}{normalised}",
            steps * task.batch_size,
        )
        if begun := work.load():
            try:
                check_alike(begun, state)
            except ValueError as error:
                raise ValueError(
                    f"The source's warm-up does not fit this model: {error}. Make the source again."
                ) from None
            for name, tensor in state.items():
                tensor.copy_(begun[name])
        done = state["steps"]
        if int(done) == steps:
            return
        replay = task.replay
        kept_at, whole = time.monotonic(), True
        with progress("RMT warm-up", steps) as advance:
            advance(int(done))
            try:
                for number in range(int(done), steps):
                    images, _ = replay[number]
                    whole = False
                    self._warm_up(task, learn, images, (number + 1) / steps)
                    done += 1
                    whole = True
                    advance(1)
                    if time.monotonic() - kept_at > KEEP_EVERY:
                        work.save(state)
                        kept_at = time.monotonic()
            finally:
                # Also when stopped, unless in the middle of a step.
                if whole:
                    work.save(state)

    def _warm_up(self, task: Task, learn: PlainStep, images: Tensor, share: float) -> None:
        target = task.teacher(images)
        step = Step(task.network, images, learning=True)
        loss = symmetric_cross_entropy(step.logits, target).mean()
        if not learn.descend(loss, share * self.lr):
            raise ValueError(
                "RMT's warm-up diverged: its loss or gradient is not finite. Lower lr, or leave "
                "the warm-up out with warmup_samples=0."
            )
        task.teacher.follow(self.teacher_momentum)

    def needs(self) -> tuple[str, ...]:
        needs = ("prototypes", "replay", "warm-up")
        weights = (self.weight_contrastive, self.weight_replay, self.warmup_samples)
        return tuple(need for need, weight in zip(needs, weights, strict=True) if weight)

    def always_drives(self) -> bool:
        return True

    def forwards(self) -> tuple[int, int]:
        count = 3 + (self.weight_replay > 0)
        return count, count
