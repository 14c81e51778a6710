"""A fair race: everyone has a turn in every round, and ratios are taken within a round."""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from meter import held_memory, milliseconds, peak_memory
from torch import Tensor

import holdfast

# Milliseconds that a contestant has in every round: a short step is tried a few times.
TURN = 300


@dataclass(frozen=True)
class Ratio:
    """A ratio of minima, with median, 10th and 90th percentile of the ratios of all rounds."""

    value: float
    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} {self.middle:.3f} {self.high:.3f})"


@dataclass
class Contestant:
    """One way to spend a step, and how it did. A bare network has no adapter.

    settle: batches after which every further one does the same.
    did: what each timed step did. held_mb: what the adapter holds beside its network.
    """

    run: Callable[[], Tensor]
    adapter: holdfast.Adapter | None = None
    settle: int = 1
    milliseconds: list[float] = field(default_factory=list)
    did: list[holdfast.Last] = field(default_factory=list)
    logits: Tensor | None = None
    peak_mb: float = math.nan
    held_mb: float = 0.0

    def warm_up(self, device: torch.device) -> None:
        self.logits = self.run()
        for _ in range(self.settle - 1):
            self.run()
        self.peak_mb = peak_memory(self.run, device)
        if self.adapter is not None:
            held = held_memory(self.adapter, without=self.adapter.source)
            self.held_mb = held - held_memory(self.adapter.model)

    def take_turn(self, device: torch.device) -> None:
        """Run for a while, one step at least; the fastest step counts for this round.

        The first step does not: it meets the memory that another contestant left, while a
        deployed adapter follows upon itself.
        """
        self.run()
        steps: list[float] = []
        while sum(steps) < TURN:
            steps.append(milliseconds(self.run, device))
            if self.adapter is not None:
                self.did.append(self.adapter.last)
        self.milliseconds.append(min(steps))

    @property
    def fastest(self) -> float:
        return min(self.milliseconds)

    @property
    def forwards(self) -> list[int]:
        """All numbers of forwards that a batch took."""
        return sorted({last.forwards for last in self.did}) or [1]

    @property
    def backwards(self) -> list[int]:
        return sorted({last.backwards for last in self.did}) or [1]

    @property
    def stepped(self) -> float | None:
        """The share of batches that led to a step; None where none ever does."""
        if self.adapter is None or not self.adapter.method.host.learns:
            return None
        return sum(last.stepped for last in self.did) / len(self.did)

    def over(self, other: Contestant) -> Ratio:
        ratios = [a / b for a, b in zip(self.milliseconds, other.milliseconds, strict=True)]
        low, middle, high = torch.tensor(ratios).quantile(torch.tensor([0.1, 0.5, 0.9])).tolist()
        return Ratio(self.fastest / other.fastest, middle, low, high)


def race(name: str, groups: list[list[Contestant]], rounds: int, device: torch.device) -> None:
    """Groups come in a new order in every round, so that a machine that slows down slows all of
    them. Those of one group follow upon each other, forwards and backwards in turn, so that they
    meet the machine in the same state."""
    order = random.Random(0)
    start = time.perf_counter()
    for index in range(rounds):
        order.shuffle(groups)
        for group in groups:
            for contestant in group if index % 2 else reversed(group):
                contestant.take_turn(device)
        remaining = (time.perf_counter() - start) / (index + 1) * (rounds - index - 1)
        tell(f"{name}: round {index + 1} of {rounds}, {remaining:.0f} s left")
    tell("")


def tell(text: str) -> None:
    """A line of progress on stderr; no live bar, whose thread would disturb the timing."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)
