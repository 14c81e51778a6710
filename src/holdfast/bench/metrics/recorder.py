"""The metrics of a run, by domain and over all, in memory that does not grow with the stream.

Accuracy is in %, entropy in nats; ECE, bias and shares go from 0 to 1. A metric of nothing is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from holdfast.bench.manifest import Metrics
from holdfast.bench.metrics.health import HealthTally
from holdfast.bench.metrics.seen import Seen
from holdfast.bench.metrics.tally import Durations, Tally, mean, ratio
from holdfast.data.readers.layouts import CLEAN
from holdfast.engine.health import Health
from holdfast.engine.last import Last, Watch
from holdfast.util.settings import whole


@dataclass
class Spoken:
    """What one term of the objective said: in how many batches, over how many images."""

    batches: int = 0
    images: int = 0
    sum: float = 0.0

    @property
    def loss(self) -> float:
        """Mean over the batches in which it spoke."""
        return ratio(self.sum, self.batches)


class Recorder:
    """Streaming metrics of one run.

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
        self.terms: dict[str, Spoken] = {}
        self.batches = self.missed = self.refused = 0
        self.steps_due = self.steps = 0
        """Steps that could have been taken, and those that were, some term driving them."""
        self.collapse: int | None = None
        """The first batch at which predictions had fallen into a few classes."""
        self.memory = math.nan
        """The most that was in use, in MB."""
        self.durations = Durations()
        self.health = HealthTally()
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
        health: Health | None = None,
    ) -> Seen:
        """Take in a batch of a loop of one's own. `domain`: one for all images or one for each;
        `last`: `adapter.last`; `time`: seconds, where they are not those of `last`; `health`:
        `adapter.health`."""
        seen = Seen.of(
            logits, labels, domain, batch=self.batches, last=last, health=health, time=time
        )
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
        self.health.add(seen)
        self.batches += 1
        self.memory = float(np.fmax(self.memory, seen.memory))
        if seen.missed:
            self.missed += 1
        else:
            self._follow(seen)

    def _tally(self, seen: Seen) -> None:
        """What was predicted, by domain."""
        scored = seen.labels >= 0
        names = np.array(seen.domains)
        for name in dict.fromkeys(names[scored].tolist()):
            tally = self.domains.setdefault(name, Tally(self.classes))
            tally.add(seen, scored & (names == name))
        if not scored.all():
            self.intruders.add(seen, ~scored)

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
        return self.tally(self.domains)

    def tally(self, domains: Iterable[str]) -> Tally:
        """Over some domains, as far as they have come."""
        total = Tally(self.classes)
        for name in domains:
            if name in self.domains:
                total += self.domains[name]
        return total

    @property
    def scores(self) -> dict[str, float]:
        """Accuracy by domain."""
        return {name: tally.accuracy for name, tally in self.domains.items()}

    @property
    def mean_accuracy(self) -> float:
        """Mean over domains."""
        return mean(self.scores.values())

    @property
    def mean_accuracy_corrupted(self) -> float:
        """Mean over domains but clean images, `original`."""
        return mean(score for name, score in self.scores.items() if name != CLEAN)

    def summary(self) -> Metrics:
        """All metrics as JSON has them: NaN is None, and what differs from run to run has `time`
        or `memory` in its name. `accuracy/snow` is of a domain, `loss/entropy` of a term."""
        taken = self.batches - self.missed
        metrics: Metrics = {
            "mean_accuracy": self.mean_accuracy,
            "mean_accuracy_corrupted": self.mean_accuracy_corrupted,
            **self.total.metrics(),
            "batches": self.batches,
            "missed": self.missed,
            "refused": self.refused,
            "collapse": self.collapse,
            "steps": self.steps,
            "steps_due": self.steps_due,
            "step_rate": ratio(self.steps, self.steps_due),
            "forwards": ratio(self._forwards, taken),
            "backwards": ratio(self._backwards, taken),
            "reliable": ratio(self._reliable, self._sifted),
            "intruders": self.intruders.images,
            "intruders_confidence": self.intruders.confidence,
            "intruders_share_above_0.95": self.intruders.share_above,
            "time_median": self.durations.quantile(50),
            "time_p95": self.durations.quantile(95),
            "time_total": self.durations.seconds if self._timed else None,
            "time_images_per_second": ratio(self._timed, self.durations.seconds),
            "memory_peak": self.memory,
        }
        for name, tally in self.domains.items():
            metrics |= {f"{metric}/{name}": value for metric, value in tally.metrics().items()}
        metrics |= self.health.metrics(self.scores)
        for name, term in self.terms.items():
            metrics[f"loss/{name}"] = term.loss
            metrics[f"rate/{name}"] = ratio(term.batches, taken)
            metrics[f"share/{name}"] = ratio(term.images, self._images)
        return {
            name: value if value is not None and math.isfinite(value) else None
            for name, value in metrics.items()
        }
