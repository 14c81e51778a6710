"""RoTTA: learn from a balanced memory of recent images, with slowly moving statistics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from holdfast.engine.step import Step
from holdfast.engine.task import Task
from holdfast.parts.augment import Augment, Augmentation
from holdfast.parts.learn import Descent, PlainStep, Proposal
from holdfast.parts.predict import Export, Predicted, Prediction
from holdfast.parts.select import Select
from holdfast.parts.teacher import Teacher
from holdfast.parts.terms import Said, Term
from holdfast.recipes.base import Learner
from holdfast.recipes.compose import register
from holdfast.util.settings import setting


@dataclass(frozen=True)
class Item:
    """An image in memory, with the teacher's label and its entropy. `born` is when it came, in
    images of the stream."""

    image: Tensor
    label: int
    entropy: float
    born: int


class Memory:
    """At most `capacity` images, spread evenly between classes; old and uncertain ones go first."""

    def __init__(
        self, capacity: int, classes: int, *, lambda_time: float, lambda_uncertainty: float
    ):
        self.capacity = capacity
        self.classes = classes
        self.lambda_time = lambda_time
        self.lambda_uncertainty = lambda_uncertainty
        self.items: list[Item] = []
        # How many images have come, taken in or not: all grow older by one with each.
        self.clock = 0

    def add(self, image: Tensor, label: int, entropy: float) -> None:
        """Take the image in if there is a place for it."""
        new = Item(image, label, entropy, self.clock)
        rivals = self._rivals(label)
        if rivals is None:
            self.items.append(new)
        else:
            scores = {index: self.score(self.items[index]) for index in rivals}
            worst = max(rivals, key=lambda index: (scores[index], index))
            if scores[worst] > self.score(new):
                del self.items[worst]
                self.items.append(new)
        self.clock += 1

    def _rivals(self, label: int) -> list[int] | None:
        """Where the items are one of which would have to go; None: there is room."""
        counts = Counter(item.label for item in self.items)
        if counts[label] < self.capacity / self.classes:
            if len(self.items) < self.capacity:
                return None
            most = max(counts.values())
            return [i for i, item in enumerate(self.items) if counts[item.label] == most]
        return [i for i, item in enumerate(self.items) if item.label == label]

    def score(self, item: Item) -> float:
        """Of two, the higher goes first."""
        timeliness = 1 / (1 + math.exp(-self.age(item)))
        uncertainty = item.entropy / math.log(self.classes)
        return self.lambda_time * timeliness + self.lambda_uncertainty * uncertainty

    def age(self, item: Item) -> float:
        return (self.clock - item.born) / self.capacity

    @property
    def images(self) -> Tensor:
        return torch.stack([item.image for item in self.items])


class StoredTeacher(Prediction):
    """The teacher's logits, by the statistics it has stored."""

    def __init__(self, teacher: Teacher):
        super().__init__()
        self.teacher = teacher

    def forward(self, step: Step) -> Predicted:
        return Predicted(self.teacher(step.images))

    def module(self, export: Export, exact: bool) -> nn.Module:
        return export(self.teacher.network)


class TimelyAgreement(Term):
    """Mean over the memory of w · CE(teacher on the images, student on their view), where
    w = e^−a / (1 + e^−a) for an age of a: recent images count more."""

    def __init__(self, teacher: Teacher, memory: Memory):
        super().__init__("teacher")
        self.teacher = teacher
        self.memory = memory

    def forward(self, step: Step) -> Said:
        images = step.network.prepare(self.memory.images)
        target = self.teacher(images, record=True).softmax(1)
        ages = [self.memory.age(item) for item in self.memory.items]
        weight = torch.sigmoid(-torch.tensor(ages, dtype=torch.float64)).to(target)
        each = -(target * step.log_probabilities).sum(1)
        return Said((weight * each).mean(), len(images))


class MemoryStep(PlainStep):
    """Puts images into memory one by one, and takes a step from all of it after every so many,
    wherever in a batch that is."""

    at_once = True

    def __init__(
        self,
        descent: Descent,
        parameters: Mapping[str, nn.Parameter],
        memory: Memory,
        augment: Augment,
        prediction: Prediction,
        *,
        every: int,
        teacher: Teacher,
        teacher_momentum: float,
    ):
        super().__init__(descent, parameters)
        self.memory = memory
        self.augment = augment
        self.predict = prediction.forward
        self.every = every
        self.teacher = teacher
        self.teacher_momentum = teacher_momentum
        self._before: tuple[list[Item], int] = [], 0

    def live(self) -> dict[str, Tensor]:
        return {**super().live(), "views": self.augment.calls}

    def held(self) -> dict[str, Tensor]:
        items = self.memory.items
        if not items:
            return {}
        return {
            "images": self.memory.images,
            "labels": torch.tensor([item.label for item in items]),
            "entropies": torch.tensor([item.entropy for item in items], dtype=torch.float64),
            "born": torch.tensor([item.born for item in items]),
            "clock": torch.tensor(self.memory.clock),
        }

    def hold(self, held: Mapping[str, Tensor]) -> None:
        self.memory.items, self.memory.clock = [], 0
        if held:
            columns = (held[name].tolist() for name in ("labels", "entropies", "born"))
            images = held["images"].to(self.teacher.network.device)
            self.memory.items = [Item(*row) for row in zip(images, *columns, strict=True)]
            self.memory.clock = int(held["clock"])

    def remember(self) -> None:
        self._before = list(self.memory.items), self.memory.clock

    def put_back(self) -> None:
        self.memory.items, self.memory.clock = self._before

    def propose(self, step: Step, terms: list[Term]) -> Proposal:
        self._check_size(step.images)
        self.augment.check(step.images)
        images = step.images[-step.newest :]
        logits = step.once(self.predict).logits[-step.newest :]
        p = logits.softmax(1)
        entropies = (-(p * (p + 1e-6).log()).sum(1)).tolist()
        labels = logits.argmax(1).tolist()
        proposal = Proposal(due=False)
        for image, label, entropy in zip(images, labels, entropies, strict=True):
            self.memory.add(image.clone(), label, entropy)
            if self.memory.clock % self.every == 0:
                update = self._update(step, terms)
                update.backwards += proposal.backwards
                proposal = update
                if not update.finite():
                    break
                self._take(update)
        return proposal

    def _check_size(self, images: Tensor) -> None:
        for item in self.memory.items[:1]:
            if item.image.shape != images.shape[1:]:
                raise ValueError(
                    f"The memory holds images of shape {tuple(item.image.shape)}, these are "
                    f"{tuple(images.shape[1:])}: keep one size, or reset() first."
                )

    def _update(self, step: Step, terms: list[Term]) -> Proposal:
        """A look at the memory through its augmented view."""
        network = step.network
        images = network.prepare(self.augment(network.prepare(self.memory.images)))
        return super().propose(Step(network, images, learning=True, record=True), terms)

    @torch.no_grad()
    def _take(self, update: Proposal) -> None:
        for commit in update.commits:
            commit()
        update.commits.clear()
        super().apply()
        self.augment.commit()
        self.teacher.follow(self.teacher_momentum)

    def apply(self) -> None:
        """Nothing is left to do: steps were taken as they came."""


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
    gathers: ClassVar[bool] = True
    memory: ClassVar[str] = (
        "another copy of the network (the teacher), `capacity` images, and a copy of the state "
        "while a batch is looked at"
    )
    presets: ClassVar = {"cifar100-c": {"lr": 1e-3}}

    lr: float = setting(1e-4, "learning rate", at_least=0)
    optimizer: Literal["sgd", "adam"] = setting("adam", "which optimiser takes the step")
    capacity: int = setting(64, "images in memory", at_least=1)
    every: int = setting(64, "images between two steps", at_least=1)
    bn_momentum: float = setting(
        0.05, "share of a new batch in the statistics", at_least=0, at_most=1
    )
    teacher_momentum: float = setting(0.999, "share of the old teacher", at_least=0, at_most=1)
    lambda_time: float = setting(1.0, "weight of age in what leaves memory", at_least=0)
    lambda_uncertainty: float = setting(1.0, "weight of entropy in what leaves memory", at_least=0)
    augment: Augmentation = setting("rotta", "the student's view: rotta's, or a fixed one")

    def selection(self) -> Select:
        return Select(self.select, "robust", momentum=self.bn_momentum)

    def _memory(self, task: Task) -> Memory:
        return Memory(
            self.capacity,
            task.network.classes,
            lambda_time=self.lambda_time,
            lambda_uncertainty=self.lambda_uncertainty,
        )

    def _prediction(self, task: Task) -> StoredTeacher:
        return StoredTeacher(task.teacher)

    def terms(self, task: Task) -> list[Term]:
        return [TimelyAgreement(task.teacher, task.once(self._memory))]

    def prediction(self, task: Task) -> Prediction:
        return task.once(self._prediction)

    def learning(self, task: Task, parameters: Mapping[str, nn.Parameter]) -> MemoryStep:
        return MemoryStep(
            self.descent(),
            parameters,
            task.once(self._memory),
            Augment(self.augment, task.draws, task.input_range),
            task.once(self._prediction),
            every=self.every,
            teacher=task.teacher,
            teacher_momentum=self.teacher_momentum,
        )

    def forwards(self) -> tuple[int, int]:
        return 1, 3

    def largest_batch(self) -> int:
        return self.every

    def passes(self) -> tuple[int, int]:
        return 0, 1

    def always_drives(self) -> bool:
        return True
