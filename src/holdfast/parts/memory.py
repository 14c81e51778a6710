"""Memories of a stream's images: which come in, and which go when there is no room."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from holdfast.engine.draws import Draws


@dataclass(frozen=True)
class Item:
    """An image in memory, with the label it was given. `born` is when it came, in images of the
    stream; the label's entropy is known where a memory goes by it."""

    image: Tensor
    label: int
    born: int
    entropy: float = 0.0


class Memory(ABC):
    """At most `capacity` images of a stream, in the order in which they came."""

    def __init__(self, capacity: int, classes: int):
        self.capacity = capacity
        self.classes = classes
        self.items: list[Item] = []
        # How many images have come, taken in or not.
        self.clock = 0

    @abstractmethod
    def add(self, images: Tensor, logits: Tensor) -> None:
        """Take in images one by one, where there is a place for them; logits label them."""

    @property
    def images(self) -> Tensor:
        return torch.stack([item.image for item in self.items])

    def _counts(self) -> Counter[int]:
        return Counter(item.label for item in self.items)

    def _of(self, label: int) -> list[int]:
        """Indices of the items of a class, the oldest first."""
        return [index for index, item in enumerate(self.items) if item.label == label]

    def state(self) -> dict[str, Tensor]:
        """All of it by name; nothing before the first image."""
        if not self.clock:
            return {}
        tensors = {"clock": torch.tensor(self.clock)}
        if self.items:
            tensors["images"] = self.images
            tensors["labels"] = torch.tensor([item.label for item in self.items])
            tensors["born"] = torch.tensor([item.born for item in self.items])
        return tensors

    def load(self, saved: Mapping[str, Tensor], device: torch.device) -> None:
        """Take back what `state` gave; nothing: begin without."""
        self.items, self.clock = [], 0
        if not saved:
            return
        none = torch.zeros(0)
        images, labels, born = (saved.get(name, none) for name in ("images", "labels", "born"))
        columns = (images.to(device), labels.tolist(), born.tolist(), self._entropies(saved))
        items, clock = [Item(*row) for row in zip(*columns, strict=True)], int(saved["clock"])
        self._check(items, clock)
        self.items, self.clock = items, clock

    def _entropies(self, saved: Mapping[str, Tensor]) -> list[float]:
        return [0.0] * len(saved.get("labels", ()))

    def _check(self, items: list[Item], clock: int) -> None:
        """A file may hold what no stream could have brought."""
        possible = clock > 0 and all(
            item.image.is_floating_point()
            and isinstance(item.label, int)
            and 0 <= item.label < self.classes
            and 0 <= item.entropy < math.inf
            and 0 <= item.born < clock
            for item in items
        )
        if not possible or len(items) > self.capacity:
            raise ValueError(
                f"a memory that could not be; expected at most {self.capacity} images, labels from "
                f"0 to {self.classes - 1}, entropies from 0 on, and none that is yet to come"
            )


class TimelyMemory(Memory):
    """Spread evenly between classes; old and uncertain ones go first (Yuan et al. 2023, RoTTA)."""

    def __init__(
        self, capacity: int, classes: int, *, lambda_time: float, lambda_uncertainty: float
    ):
        super().__init__(capacity, classes)
        self.lambda_time = lambda_time
        self.lambda_uncertainty = lambda_uncertainty

    def add(self, images: Tensor, logits: Tensor) -> None:
        p = logits.softmax(1)
        entropies = (-(p * (p + 1e-6).log()).sum(1)).tolist()
        for image, label, entropy in zip(images, logits.argmax(1).tolist(), entropies, strict=True):
            self._add(Item(image.clone(), label, self.clock, entropy))
            self.clock += 1

    def _add(self, new: Item) -> None:
        rivals = self._rivals(new.label)
        if rivals is not None:
            scores = {index: self.score(self.items[index]) for index in rivals}
            worst = max(rivals, key=lambda index: (scores[index], index))
            if scores[worst] <= self.score(new):
                return
            del self.items[worst]
        self.items.append(new)

    def _rivals(self, label: int) -> list[int] | None:
        """Indices of the items of which one would have to go; None: there is room."""
        counts = self._counts()
        if counts[label] < self.capacity / self.classes:
            if len(self.items) < self.capacity:
                return None
            most = max(counts.values())
            return [i for i, item in enumerate(self.items) if counts[item.label] == most]
        return self._of(label)

    def score(self, item: Item) -> float:
        """Of two, the higher goes first."""
        timeliness = 1 / (1 + math.exp(-self.age(item)))
        uncertainty = item.entropy / math.log(self.classes)
        return self.lambda_time * timeliness + self.lambda_uncertainty * uncertainty

    def age(self, item: Item) -> float:
        return (self.clock - item.born) / self.capacity

    def state(self) -> dict[str, Tensor]:
        tensors = super().state()
        if tensors:
            entropies = [item.entropy for item in self.items]
            tensors["entropies"] = torch.tensor(entropies, dtype=torch.float64)
        return tensors

    def _entropies(self, saved: Mapping[str, Tensor]) -> list[float]:
        entropies: list[float] = saved["entropies"].tolist()
        return entropies


class FifoMemory(Memory):
    """The last images, of whatever class."""

    def add(self, images: Tensor, logits: Tensor) -> None:
        for image, label in zip(images, logits.argmax(1).tolist(), strict=True):
            self.items.append(Item(image.clone(), label, self.clock))
            self.clock += 1
        del self.items[: -self.capacity]


class BalancedMemory(Memory):
    """Where it is full, an image of one of the largest classes makes room, or, for a newcomer of
    such a class, one of its own (Gong et al. 2022, NOTE; Gong et al. 2023, SoTTA).

    evict: a random largest class and a random item of it; or, for exact tests, the first and its
    oldest. sampled: of a class among the largest, a newcomer comes in with probability m/n, with m
    items of the class in memory and n images of it so far, this one among them; else always.
    threshold: only images whose largest probability is at least this are considered.
    """

    def __init__(
        self,
        capacity: int,
        classes: int,
        draws: Draws,
        *,
        evict: Literal["random", "oldest"],
        sampled: bool = False,
        threshold: float = 0.0,
    ):
        super().__init__(capacity, classes)
        self.draws = draws
        self.random = evict == "random"
        self.sampled = sampled
        self.threshold = threshold
        # How many images of each class have come.
        self.seen = [0] * classes

    def add(self, images: Tensor, logits: Tensor) -> None:
        sure = (logits.softmax(1).amax(1) >= self.threshold).tolist()
        labels = logits.argmax(1).tolist()
        with self.draws.scope() if self.random else nullcontext():
            for image, label, considered in zip(images, labels, sure, strict=True):
                if considered:
                    self._add(image, label)
                self.clock += 1

    def _add(self, image: Tensor, label: int) -> None:
        self.seen[label] += 1
        if len(self.items) == self.capacity:
            leaving = self._leaving(label)
            if leaving is None:
                return
            indices = self._of(leaving)
            del self.items[indices[self._draw(len(indices))]]
        self.items.append(Item(image.clone(), label, self.clock))

    def _leaving(self, label: int) -> int | None:
        """The class of which an item makes room for a newcomer; None: the newcomer is dropped."""
        counts = self._counts()
        most = max(counts.values())
        if counts[label] < most:
            largest = sorted(known for known, count in counts.items() if count == most)
            return largest[self._draw(len(largest))]
        if self.random and self.sampled and torch.rand(()) >= most / self.seen[label]:
            return None
        return label

    def _draw(self, count: int) -> int:
        return int(torch.randint(count, ())) if self.random else 0

    def state(self) -> dict[str, Tensor]:
        tensors = super().state()
        return {**tensors, "seen": torch.tensor(self.seen)} if tensors else {}

    def load(self, saved: Mapping[str, Tensor], device: torch.device) -> None:
        seen = saved["seen"].tolist() if saved else [0] * self.classes
        super().load(saved, device)
        counts = self._counts()
        whole = [count for count in seen if isinstance(count, int)]
        if len(whole) != self.classes or any(counts[c] > count for c, count in enumerate(whole)):
            raise ValueError(
                "a memory that could not be; expected to have seen at least what it holds of each "
                f"of {self.classes} classes"
            )
        self.seen = whole
