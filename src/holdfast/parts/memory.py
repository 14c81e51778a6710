"""A balanced memory of a stream's images, and steps that are taken from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.engine.step import Step
from holdfast.parts.augment import Augment
from holdfast.parts.learn import Descent, PlainStep, Proposal
from holdfast.parts.predict import Prediction
from holdfast.parts.terms import Term
from holdfast.parts.upkeep import Teacher


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

    def tensors(self) -> dict[str, Tensor]:
        return {**super().tensors(), "views": self.augment.calls}

    def extra_state(self) -> dict[str, Tensor]:
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

    def load_extra_state(self, saved: Mapping[str, Tensor]) -> None:
        self.memory.items, self.memory.clock = [], 0
        if saved:
            columns = (saved[name].tolist() for name in ("labels", "entropies", "born"))
            images = saved["images"].to(self.teacher.network.device)
            items = [Item(*row) for row in zip(images, *columns, strict=True)]
            clock = int(saved["clock"])
            self._check(items, clock)
            self.memory.items, self.memory.clock = items, clock

    def _check(self, items: list[Item], clock: int) -> None:
        """A file may hold what no stream could have brought."""
        classes, capacity = self.memory.classes, self.memory.capacity
        possible = all(
            item.image.is_floating_point()
            and isinstance(item.label, int)
            and 0 <= item.label < classes
            and 0 <= item.entropy < math.inf
            and 0 <= item.born < clock
            for item in items
        )
        if not possible or len(items) > capacity:
            raise ValueError(
                f"a memory that could not be; expected at most {capacity} images, labels from 0 to "
                f"{classes - 1}, entropies from 0 on, and none that is yet to come"
            )

    def propose(self, step: Step, terms: list[Term]) -> Proposal:
        self._check_size(step.images)
        self.augment.check(step.images)
        images = step.images[-step.newest :]
        logits = step.cached(self.predict).logits[-step.newest :]
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
