"""The figures of a run, by domain and over all, in memory that does not grow with the stream.

Accuracy is in %, entropy in nats; ECE, bias and shares go from 0 to 1. A figure of nothing is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from holdfast.bench.metrics.curve import Curve, Durations
from holdfast.bench.metrics.seen import Seen
from holdfast.data.readers.layouts import CLEAN
from holdfast.engine.collapse import Watch
from holdfast.engine.last import Last
from holdfast.util.whole import whole

Counts: TypeAlias = NDArray[np.int64]
Values: TypeAlias = NDArray[np.float64]
Figures: TypeAlias = dict[str, int | float | None]


class Diagram(NamedTuple):
    """A reliability diagram, bin by bin; NaN where a bin is empty.

    A bin holds its lower edge and not the upper one; but the last one holds 1 too.
    """

    images: Counts
    accuracy: Values
    confidence: Values
    entropy: Values


@cache
def _edges(bins: int) -> NDArray[np.float32]:
    # Torch's, as in torchmetrics: numpy rounds some of them the other way.
    edges: NDArray[np.float32] = torch.linspace(0, 1, bins + 1, dtype=torch.float32).numpy()
    return edges


class Tally:
    """What is known of some images: of a domain, of a run, or of images that belong to no class,
    for which a figure that needs labels is NaN."""

    def __init__(self, classes: int):
        self.labels: Counts = np.zeros(classes, np.int64)
        """Images of each class."""
        self.predicted: Counts = np.zeros(classes, np.int64)
        """Images predicted to be of each class."""
        self.undefined = 0
        """Images without a prediction, since their softmax is not defined."""
        self.above = 0
        """Images whose confidence is above 0.95."""
        # By confidence, in bins of equal width: images, and their sums of correct, confidence and
        # entropy. As in torchmetrics, exactly 1 is a bin of its own, after the others.
        self._binned: dict[int, Values] = {bins: np.zeros((4, bins + 1)) for bins in (15, 20)}

    def add(self, seen: Seen, which: Any = slice(None)) -> None:
        labels, predicted = seen.labels[which], seen.predicted[which]
        confidence, entropy = seen.confidence[which], seen.entropy[which]
        scored, known = labels >= 0, predicted[predicted >= 0]
        self.labels += np.bincount(labels[scored], minlength=len(self.labels))
        self.predicted += np.bincount(known, minlength=len(self.predicted))
        self.undefined += len(predicted) - len(known)
        self.above += int((confidence > 0.95).sum())
        values = (None, scored & (labels == predicted), confidence, entropy)
        for bins, binned in self._binned.items():
            at = np.searchsorted(_edges(bins), confidence, side="right") - 1
            for sums, each in zip(binned, values, strict=True):
                sums += np.bincount(at, each, bins + 1)

    def __iadd__(self, other: Tally) -> Tally:
        self.labels += other.labels
        self.predicted += other.predicted
        self.undefined += other.undefined
        self.above += other.above
        for bins, binned in self._binned.items():
            binned += other._binned[bins]
        return self

    @property
    def images(self) -> int:
        return int(self._sums[0])

    @property
    def correct(self) -> int:
        return int(self._sums[1])

    @property
    def accuracy(self) -> float:
        return 100 * _ratio(self.correct, self.labels.sum())

    @property
    def confidence(self) -> float:
        """Mean confidence."""
        return _ratio(self._sums[2], self.images)

    @property
    def entropy(self) -> float:
        """Mean entropy."""
        return _ratio(self._sums[3], self.images)

    @property
    def share_above(self) -> float:
        """Share of images whose confidence is above 0.95."""
        return _ratio(self.above, self.images)

    @property
    def bias(self) -> float:
        """½ Σ |share of a class among predictions − among labels|, the total variation distance:
        the share of predictions to change for every class to be predicted as often as it is there.
        0: as the labels are; 1: only classes that are not there. No prediction is one more class.
        """
        apart = np.abs(self.predicted - self.labels).sum() + self.undefined
        return _ratio(apart, 2 * self.labels.sum())

    def ece(self, bins: Literal[15, 20] = 15) -> float:
        """Expected calibration error: Σ |accuracy − mean confidence| over bins, each weighted by
        its share of the images."""
        _, correct, confidence, _ = self._binned[bins]
        return _ratio(np.abs(correct - confidence).sum(), self.labels.sum())

    def diagram(self) -> Diagram:
        """Over 20 bins. Its images are the histogram of confidence."""
        binned = self._binned[20]
        sums = binned[:, :-1].copy()
        sums[:, -1] += binned[:, -1]
        with np.errstate(invalid="ignore"):
            correct, confidence, entropy = sums[1:] / sums[0]
        return Diagram(sums[0].astype(np.int64), 100 * correct, confidence, entropy)

    def figures(self) -> Figures:
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


@dataclass
class Spoken:
    """What one term of the objective said: in how many batches, over how many images."""

    batches: int = 0
    images: int = 0
    sum: float = 0.0

    @property
    def loss(self) -> float:
        """Mean over the batches in which it spoke."""
        return _ratio(self.sum, self.batches)


class Recorder:
    """Streaming figures of one run.

    >>> import torch
    >>> from holdfast.bench import Recorder
    >>> recorder = Recorder(classes=2)
    >>> logits, labels = torch.eye(2), torch.tensor([0, 0])
    >>> _ = recorder.record(logits, labels, domain="snow")
    >>> recorder.domains["snow"].accuracy, round(recorder.total.ece(), 2)
    (50.0, 0.23)

    Images with a negative label are not scored: `intruders` alone tells of them. What a method
    does is counted over the batches that it did not miss.
    """

    def __init__(self, classes: int):
        self.classes = whole(classes, "classes", 1)
        self.domains: dict[str, Tally] = {}
        """In order of first appearance."""
        self.intruders = Tally(self.classes)
        self.curve = Curve()
        self.terms: dict[str, Spoken] = {}
        self.batches = self.missed = self.refused = 0
        self.steps_due = self.steps = 0
        """Steps that could have been taken, and those that were, some term driving them."""
        self.collapse: int | None = None
        """The first batch at which predictions had fallen into a few classes."""
        self.memory = math.nan
        """The most that was in use, in MB."""
        self.durations = Durations()
        self._watch = Watch(self.classes)
        self._images = self._timed = self._sifted = self._reliable = 0
        self._forwards = self._backwards = 0

    def record(
        self,
        logits: Tensor,
        labels: Tensor | ArrayLike,
        domain: str | Sequence[str] = "all",
        last: Last | None = None,
        time: float | None = None,
    ) -> Seen:
        """Take in a batch of a loop of one's own. `domain`: one for all images or one for each;
        `last`: `adapter.last`; `time`: seconds, where they are not those of `last`."""
        seen = Seen.of(logits, labels, domain, batch=self.batches, last=last, time=time)
        if logits.shape[1] != self.classes:
            raise ValueError(
                f"Logits have {logits.shape[1]} classes, the recorder {self.classes}: make a "
                f"Recorder({logits.shape[1]}) for this model."
            )
        if (seen.predicted < 0).any():
            raise ValueError(
                "Logits hold NaN or Inf: nothing is predicted, and nothing was recorded. Leave "
                "the batch out, or reset the adapter."
            )
        self.update(seen)
        return seen

    def update(self, seen: Seen) -> None:
        """Take in a batch."""
        largest = max(int(seen.labels.max()), int(seen.predicted.max()))
        if largest >= self.classes:
            raise ValueError(
                f"Batch {seen.batch} has class {largest}; the recorder has {self.classes} classes, "
                f"from 0 to {self.classes - 1}."
            )
        self._tally(seen)
        known = seen.predicted[seen.predicted >= 0]
        if self.collapse is None and len(known) and self._watch(torch.from_numpy(known)):
            self.collapse = seen.batch
        self.batches += 1
        self.memory = float(np.fmax(self.memory, seen.memory))
        if seen.missed:
            self.missed += 1
        else:
            self._follow(seen)

    def _tally(self, seen: Seen) -> None:
        """What was predicted, by domain."""
        scored = seen.labels >= 0
        self.curve.add((seen.labels == seen.predicted)[scored])
        if seen.domain is not None and scored.all():
            self._add(seen.domain, seen)
            return
        names = np.array(seen.domains)
        for name in dict.fromkeys(names[scored].tolist()):
            self._add(name, seen, scored & (names == name))
        self.intruders.add(seen, ~scored)

    def _add(self, domain: str, seen: Seen, which: Any = slice(None)) -> None:
        tally = self.domains.get(domain) or Tally(self.classes)
        tally.add(seen, which)
        if domain not in self.domains:
            # Not into the old one: a table that shows it may be drawn in another thread.
            self.domains = {**self.domains, domain: tally}

    def _follow(self, seen: Seen) -> None:
        """What the method did."""
        self._images += len(seen)
        self._forwards += seen.forwards
        self._backwards += seen.backwards
        if seen.due:
            self.steps_due += 1
            self.steps += seen.stepped and bool(seen.losses)
        self.refused += seen.refused is not None
        if seen.reliable is not None:
            self._reliable += seen.reliable
            self._sifted += len(seen)
        if math.isfinite(seen.time):
            self.durations.add(seen.time)
            self._timed += len(seen)
        # The losses of a refused batch led to no step, and may be NaN.
        for term, loss in seen.losses.items() if seen.refused is None else ():
            spoken = self.terms.setdefault(term, Spoken())
            spoken.batches += 1
            spoken.images += seen.images.get(term, 0)
            spoken.sum += loss

    @property
    def total(self) -> Tally:
        """Over all domains."""
        total = Tally(self.classes)
        for tally in self.domains.values():
            total += tally
        return total

    @property
    def mean_accuracy(self) -> float:
        """Mean over domains."""
        return _mean([tally.accuracy for tally in self.domains.values()])

    @property
    def mean_accuracy_corrupted(self) -> float:
        """Mean over domains but clean images, `original`."""
        return _mean([tally.accuracy for name, tally in self.domains.items() if name != CLEAN])

    def summary(self) -> Figures:
        """All figures as JSON has them: NaN is None, and what differs from run to run has `time`
        or `memory` in its name. `accuracy/snow` is of a domain, `loss/entropy` of a term."""
        taken = self.batches - self.missed
        found: Figures = {
            "mean_accuracy": self.mean_accuracy,
            "mean_accuracy_corrupted": self.mean_accuracy_corrupted,
            **self.total.figures(),
            "batches": self.batches,
            "missed": self.missed,
            "refused": self.refused,
            "collapse": self.collapse,
            "steps": self.steps,
            "steps_due": self.steps_due,
            "step_rate": _ratio(self.steps, self.steps_due),
            "forwards": _ratio(self._forwards, taken),
            "backwards": _ratio(self._backwards, taken),
            "reliable": _ratio(self._reliable, self._sifted),
            "intruders": self.intruders.images,
            "intruders_confidence": self.intruders.confidence,
            "intruders_share_above_0.95": self.intruders.share_above,
            "time_median": self.durations.quantile(50),
            "time_p95": self.durations.quantile(95),
            "time_total": self.durations.seconds if self._timed else None,
            "time_images_per_second": _ratio(self._timed, self.durations.seconds),
            "memory_peak": self.memory,
        }
        for name, tally in self.domains.items():
            found |= {f"{figure}/{name}": value for figure, value in tally.figures().items()}
        for name, term in self.terms.items():
            found[f"loss/{name}"] = term.loss
            found[f"rate/{name}"] = _ratio(term.batches, taken)
            found[f"share/{name}"] = _ratio(term.images, self._images)
        return {
            name: value if value is not None and math.isfinite(value) else None
            for name, value in found.items()
        }


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else math.nan


def _mean(values: list[float]) -> float:
    return _ratio(sum(values), len(values))
