"""Counts over images and times of batches, in memory that does not grow with them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from holdfast.bench.manifest import Metrics
from holdfast.bench.metrics.seen import Seen

Counts: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[np.float64]


class Diagram(NamedTuple):
    """A reliability diagram, bin by bin; NaN where a bin is empty.

    A bin holds its lower edge and not the upper one; but the last one holds 1 too.
    """

    images: Counts
    accuracy: Values
    confidence: Values
    entropy: Values


# Torch's, as in torchmetrics: numpy rounds some of them the other way.
EDGES = {bins: torch.linspace(0, 1, bins + 1, dtype=torch.float32).numpy() for bins in (15, 20)}


class Tally:
    """Counts over some images: of a domain, of a run, or of images that belong to no class, for
    which a metric that needs labels is NaN."""

    def __init__(self, classes: int):
        self.labels: Counts = np.zeros(classes, np.int64)
        """Images of each class."""
        self.predicted: Counts = np.zeros(classes, np.int64)
        """Images predicted to be of each class."""
        self.above = 0
        """Images whose confidence is above 0.95."""
        # By confidence, in bins of equal width: images, and their sums of correct, confidence and
        # entropy. As in torchmetrics, exactly 1 is a bin of its own, after the others.
        self._binned: dict[int, Values] = {bins: np.zeros((4, bins + 1)) for bins in EDGES}

    def add(self, seen: Seen, chosen: Any = slice(None)) -> None:
        labels, predicted = seen.labels[chosen], seen.predicted[chosen]
        confidence, entropy = seen.confidence[chosen], seen.entropy[chosen]
        scored = labels >= 0
        self.labels += np.bincount(labels[scored], minlength=len(self.labels))
        self.predicted += np.bincount(predicted[predicted >= 0], minlength=len(self.predicted))
        self.above += int((confidence > 0.95).sum())
        values = (None, scored & (labels == predicted), confidence, entropy)
        for bins, binned in self._binned.items():
            at = np.searchsorted(EDGES[bins], confidence, side="right") - 1
            for sums, weights in zip(binned, values, strict=True):
                sums += np.bincount(at, weights, bins + 1)

    def __iadd__(self, other: Tally) -> Tally:
        self.labels += other.labels
        self.predicted += other.predicted
        self.above += other.above
        for bins, binned in self._binned.items():
            binned += other._binned[bins]
        return self

    @property
    def images(self) -> int:
        return int(self._sums[0])

    @property
    def undefined(self) -> int:
        """Images without a prediction, since their softmax is not defined."""
        return self.images - int(self.predicted.sum())

    @property
    def correct(self) -> int:
        return int(self._sums[1])

    @property
    def accuracy(self) -> float:
        return 100 * ratio(self.correct, self.labels.sum())

    @property
    def confidence(self) -> float:
        return ratio(self._sums[2], self.images)

    @property
    def entropy(self) -> float:
        return ratio(self._sums[3], self.images)

    @property
    def share_above(self) -> float:
        """Share of images whose confidence is above 0.95."""
        return ratio(self.above, self.images)

    @property
    def bias(self) -> float:
        """½ Σ |share of a class among predictions − among labels|, the total variation distance:
        the share of predictions to change for every class to be predicted as often as it is there.
        0: as the labels are; 1: only classes that are not there. No prediction is one more class.
        """
        apart = np.abs(self.predicted - self.labels).sum() + self.undefined
        return ratio(apart, 2 * self.labels.sum())

    def ece(self, bins: Literal[15, 20] = 15) -> float:
        """Expected calibration error: Σ |accuracy − mean confidence| over bins, each weighted by
        its share of the images."""
        _, correct, confidence, _ = self._binned[bins]
        return ratio(np.abs(correct - confidence).sum(), self.labels.sum())

    def diagram(self) -> Diagram:
        """Over 20 bins. Its images are the histogram of confidence."""
        binned = self._binned[20]
        sums = binned[:, :-1].copy()
        sums[:, -1] += binned[:, -1]
        with np.errstate(invalid="ignore"):
            correct, confidence, entropy = sums[1:] / sums[0]
        return Diagram(sums[0].astype(np.int64), 100 * correct, confidence, entropy)

    def metrics(self) -> Metrics:
        return {
            "images": self.images,
            "accuracy": self.accuracy,
            "ece_15": self.ece(15),
            "ece_20": self.ece(20),
            "bias": self.bias,
            "confidence": self.confidence,
            "share_above_0.95": self.share_above,
            "entropy": self.entropy,
            "undefined": self.undefined,
        }

    @property
    def _sums(self) -> Values:
        sums: Values = self._binned[20].sum(1)
        return sums


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
        """The shortest time that so many % of the batches did not exceed."""
        total = np.cumsum(self._count)
        if total[-1] == 0:
            return math.nan
        rank = -(-percent * int(total[-1]) // 100)
        middle = self.LEAST * math.exp((int(np.searchsorted(total, rank)) + 0.5) * self.STEP)
        return min(max(middle, self._shortest), self._longest)


def ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else math.nan


def mean(values: Iterable[float]) -> float:
    known = list(values)
    return ratio(sum(known), len(known))
