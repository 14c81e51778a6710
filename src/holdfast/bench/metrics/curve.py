"""Accuracy over time, and the time of batches, in memory that does not grow with the stream."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


class Curve:
    """Accuracy over time, in at most so many stretches of equally many images.

    When all are full, neighbours become one and stretches are twice as long: the sums stay exact,
    and are the same however the stream was cut into batches.
    """

    def __init__(self, stretches: int = 256):
        if stretches < 2 or stretches % 2:
            raise ValueError(f"A curve needs an even number of stretches, not {stretches}.")
        self.width = 1
        """Images in a stretch; the last one may have fewer."""
        self.images = 0
        self._correct = np.zeros(stretches, np.int64)

    def add(self, correct: NDArray[np.bool_]) -> None:
        """The next images of the stream: whether each was right."""
        end, stretches = self.images + len(correct), len(self._correct)
        while end > stretches * self.width:
            pairs = self._correct.reshape(-1, 2).sum(1)
            self._correct = np.concatenate([pairs, np.zeros_like(pairs)])
            self.width *= 2
        at = np.arange(self.images, end) // self.width
        self._correct += np.bincount(at[correct], minlength=stretches)
        self.images = end

    @property
    def ends(self) -> NDArray[np.int64]:
        """How many images had been seen at the end of each stretch."""
        full = np.arange(self.width, self.images + self.width, self.width, dtype=np.int64)
        return np.minimum(full, self.images)

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """Of each stretch, in %."""
        ends = self.ends
        share: NDArray[np.float64] = self._correct[: len(ends)] / np.diff(ends, prepend=0)
        return 100 * share


class Durations:
    """How long batches took, counted in steps of 2 %, so that quantiles are exact to 1 %."""

    LEAST = 1e-6
    STEP = math.log(1.02)

    def __init__(self) -> None:
        self.seconds = 0.0
        self._count = np.zeros(1300, np.int64)  # up to 42 hours
        self._shortest, self._longest = math.inf, 0.0

    def add(self, seconds: float) -> None:
        at = int(math.log(max(seconds, self.LEAST) / self.LEAST) / self.STEP)
        self._count[min(at, len(self._count) - 1)] += 1
        self.seconds += seconds
        self._shortest = min(self._shortest, seconds)
        self._longest = max(self._longest, seconds)

    def quantile(self, percent: int) -> float:
        """The shortest time than which so many % of the batches took no longer."""
        total = np.cumsum(self._count)
        if total[-1] == 0:
            return math.nan
        rank = -(-percent * int(total[-1]) // 100)
        middle = self.LEAST * math.exp((int(np.searchsorted(total, rank)) + 0.5) * self.STEP)
        return min(max(middle, self._shortest), self._longest)
