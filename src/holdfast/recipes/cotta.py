"""CoTTA: learn from a mean teacher that sees augmented views, and forget a little all the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from holdfast import Learner, register, setting
from holdfast.parts import (
    AUGMENTATIONS,
    Augment,
    AugmentationName,
    Export,
    MeanTeacher,
    Outcome,
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


class Target(NamedTuple):
    """The teacher's logits, over how many augmented views they are a mean, and its first forward
    among them."""

    logits: Tensor
    views: int
    seen: Step | None = None


def teacher_target(
    images: Tensor,
    teacher: Callable[[Tensor], Tensor],
    source: Tensor | None,
    augment: Augment,
    method: Cotta,
) -> Target:
    """The teacher on the images; but where the source model's logits are unsure of the batch, its
    mean logits over augmented views, one after the other."""
    if source is None or source.softmax(1).amax(1).mean() >= method.augment_below:
        return Target(teacher(images), 0)
    total = teacher(augment(images))
    for index in range(1, method.views):
        total = total + teacher(augment(images, ahead=index))
    return Target(total / method.views, method.views)


class TeacherPrediction(Prediction):
    """The teacher's logits, or the student's."""

    def __init__(self, task: Task, method: Cotta):
        student = method.predict == "student"
        super().__init__(task.network if student else task.teacher.network)
        self.student = student
        self.teacher = task.teacher
        self.augment = task.augment(AUGMENTATIONS[method.augment])
        self.method = method
        # Made now: later, the caller's model may be another one.
        self.anchor = task.anchor if method.averages() else None

    @torch.no_grad()
    def target(self, step: Step) -> Target:
        self.augment.check(step.images)
        first: Step | None = None

        def teacher(images: Tensor) -> Tensor:
            nonlocal first
            record = step.record and first is None  # of several views, the first
            images = step.network.prepare(images)
            seen = Step(self.teacher.network, images, record=record, newest=step.newest)
            first = first or seen
            return seen.logits

        source = None if self.anchor is None else self.anchor(step.images)[1]
        target = teacher_target(step.images, teacher, source, self.augment, self.method)
        return target._replace(seen=first)

    def forward(self, step: Step) -> Predicted:
        if self.student:
            return Predicted(step.logits.detach())
        target = step.cached(self.target)
        return Predicted(target.logits, seen=target.seen)

    def module(self, export: Export, exact: bool) -> nn.Module:
        predictor = export(self.network)
        if self.student or not exact or self.anchor is None:
            return predictor
        return Views(predictor, export(self.anchor), self.augment, self.method)


class Views(nn.Module):
    """The teacher as a plain module, its augmented views drawn as the next batch's would be."""

    def __init__(self, teacher: nn.Module, anchor: nn.Module, augment: Augment, method: Cotta):
        super().__init__()
        self.teacher = teacher
        self.anchor = anchor
        self.augment = augment.copy()
        self.method = method

    def forward(self, images: Tensor) -> Tensor:
        def teacher(view: Tensor) -> Tensor:
            return logits_of(self.teacher(view))

        source = logits_of(self.anchor(images))
        with self.augment.draws.restored():
            return teacher_target(images, teacher, source, self.augment, self.method).logits


class TeacherAgreement(Term):
    """CE between the teacher's prediction (the target) and the student's, over the whole batch; or
    the mean of both directions."""

    def __init__(self, prediction: TeacherPrediction, symmetric: bool):
        super().__init__("teacher")
        self.target = prediction.target
        self.commit = prediction.augment.commit
        self.symmetric = symmetric

    def forward(self, step: Step) -> TermResult:
        target, views, _ = step.cached(self.target)
        if self.symmetric:
            loss = symmetric_cross_entropy(step.logits, target).mean()
        else:
            loss = nn.functional.cross_entropy(step.logits, target.softmax(1))
        return TermResult(loss, len(step.images), lambda: self.commit(views))


class StochasticRestore(Upkeep):
    """Each number of every weight goes back to the source with probability p."""

    def __init__(self, task: Task, probability: float):
        super().__init__()
        self.weights = list(task.parameters.values())
        self.source = [task.anchor.model.get_parameter(name) for name in task.parameters]
        self.probability = probability
        self.draws = task.draws
        sizes = [weight.numel() for weight in self.weights]
        self.size = sum(sizes)
        # 1 where a number goes back; each weight has its part of one flat buffer.
        self.flat = self.weights[0].new_zeros(self.size)
        self.marks = list(map(_like, torch.split(self.flat, sizes), self.weights))

    def forward(self, outcome: Outcome) -> None:
        chosen = self._draw().to(self.flat.device)
        self.flat[chosen] = 1
        # With a weight of exactly 0 or 1, lerp gives exactly one of its ends.
        torch._foreach_lerp_([*self.weights], [*self.source], self.marks)
        self.flat[chosen] = 0

    def _draw(self) -> Tensor:
        """Places of the numbers that go back. The gaps between them are geometric, so that only as
        many are drawn as there are places, not one for every weight."""
        if self.probability == 1:
            return torch.arange(self.size)
        expected = self.size * self.probability
        enough = int(expected + 6 * expected**0.5) + 16
        drawn: list[Tensor] = []
        end = -1
        with self.draws.scope():
            while end < self.size:
                gaps = torch.empty(enough, dtype=torch.float64).geometric_(self.probability)
                drawn.append(end + gaps.long().cumsum(0))
                end = int(drawn[-1][-1])
        places = torch.cat(drawn)
        return places[places < self.size]


def _like(part: Tensor, weight: Tensor) -> Tensor:
    """A view of a flat tensor in the shape of a weight, and in its order in memory for speed."""
    if weight.ndim == 4 and weight.is_contiguous(memory_format=torch.channels_last):
        rows, channels, height, width = weight.shape
        return part.view(rows, height, width, channels).permute(0, 3, 1, 2)
    return part.view(weight.shape)


@register("cotta")
@dataclass(frozen=True)
class Cotta(Learner):
    """Agrees with a mean teacher, which averages augmented views where the source model is unsure.

    L = CE(teacher, student);  θ' ← m θ' + (1 − m) θ;  each number of θ ← θ0 with probability p
    """

    paper: ClassVar[str] = (
        "Wang et al. 2022, Continual test-time domain adaptation, arXiv 2203.13591"
    )
    note: ClassVar[str] = (
        "Views are taken one at a time, with no graph, and only for batches on which the source "
        "model's mean confidence is below augment_below: adapter.last.forwards tells. frozen() is "
        "the teacher without views, with the statistics of its forwards on the stream (of a "
        "batch's first view, where it took views); frozen(statistics='batch') has the views too."
    )
    memory: ClassVar[str] = (
        "two more copies of the network (teacher and source), one number for each weight, and the "
        "activations of one view without a graph"
    )
    presets: ClassVar = {
        "cifar100-c": {
            "optimizer": "adam",
            "lr": 1e-3,
            "nesterov": False,
            "augment_below": 0.72,
            "restore": 0.01,
            "loss": "ce",
        }
    }

    lr: float = setting(1e-4)
    nesterov: bool = setting(True)
    select: Literal["norm", "body", "all"] = setting("all")
    augment_below: float = setting(
        0.1, "views where the source's mean confidence is below this", at_least=0, at_most=1
    )
    views: int = setting(32, "augmented views that the teacher averages", at_least=1)
    restore: float = setting(
        0.001, "probability that a weight goes back to the source", at_least=0, at_most=1
    )
    teacher_momentum: float = setting(0.999, "share of the old teacher", at_least=0, at_most=1)
    loss: Literal["ce", "symmetric"] = setting(
        "symmetric", "cross-entropy to the teacher, or the mean of both directions"
    )
    predict: Literal["teacher", "student"] = setting("teacher", "whose logits leave")
    augment: AugmentationName = setting("cotta", "the teacher's views: cotta's, or a fixed one")

    def averages(self) -> bool:
        """Whether views may be wanted: without augmentation they are all the same."""
        return self.augment_below > 0 and self.augment != "none"

    def _prediction(self, task: Task) -> TeacherPrediction:
        return TeacherPrediction(task, self)

    def terms(self, task: Task) -> list[Term]:
        return [TeacherAgreement(task.cached(self._prediction), self.loss == "symmetric")]

    def prediction(self, task: Task) -> Prediction:
        return task.cached(self._prediction)

    def upkeep(self, task: Task) -> list[Upkeep]:
        rules: list[Upkeep] = [MeanTeacher(task.teacher, self.teacher_momentum)]
        return [*rules, StochasticRestore(task, self.restore)] if self.restore else rules

    def predicting(self) -> str:
        return f"the {self.predict}'s logits, before the update"

    def always_drives(self) -> bool:
        return True

    def forwards(self) -> tuple[int, int]:
        return (3, 2 + self.views) if self.averages() else (2, 2)
