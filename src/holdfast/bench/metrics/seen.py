"""One batch as the recorder sees it, which is one row of a run's store."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import polars as pl
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from holdfast.engine.health import Health
from holdfast.engine.last import Last

Integers: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float32]

# What differs from run to run has `time` or `memory` in its name, and nothing else has.
SCHEMA: dict[str, pl.DataType] = {
    "batch": pl.Int64(),
    "visit": pl.Int64(),
    "domain": pl.String(),
    "domains": pl.List(pl.String()),
    "images": pl.Int64(),
    "scored": pl.Int64(),
    "correct": pl.Int64(),
    "label": pl.List(pl.Int32()),
    "predicted": pl.List(pl.Int32()),
    "confidence": pl.List(pl.Float32()),
    "entropy": pl.List(pl.Float32()),
    "missed": pl.Boolean(),
    "reliable": pl.Int64(),
    "due": pl.Boolean(),
    "stepped": pl.Boolean(),
    "refused": pl.String(),
    "forwards": pl.Int64(),
    "backwards": pl.Int64(),
    "fallback": pl.Boolean(),
    "drift": pl.Float64(),
    "estimated": pl.Float64(),
    "estimated_low": pl.Float64(),
    "estimated_high": pl.Float64(),
    "estimated_frozen": pl.Float64(),
    "state": pl.String(),
    "alarm": pl.Boolean(),
    "time": pl.Float64(),
    "memory": pl.Float64(),
}
# A term's loss, Float64, and the images it was over, Int64.
LOSS, IMAGES = "loss/", "images/"
MIXED = "mixed"

# What a batch, its row and `Last` have under the same name.
FROM_LAST = ("reliable", "due", "stepped", "refused", "forwards", "backwards", "fallback")
# What is known of its health, as a row and a batch have it.
OF_HEALTH = (
    *("drift", "estimated", "estimated_low", "estimated_high", "estimated_frozen"),
    *("state", "alarm"),
)


@dataclass(frozen=True, eq=False)
class Seen:
    """One batch: what was predicted, and what the adapter did. Arrays hold one value an image.

    labels: −1 where an image is not scored.
    predicted: −1 where the softmax is not defined, since NaN or Inf is among the logits; such an
    image is wrong, at confidence 0 and with the entropy ln C of knowing nothing. So the row of a
    method that has diverged goes on. A logit of −Inf only rules out its class.
    confidence: the largest probability. entropy: of the softmax, in nats. Where a method corrects
    logits into scores that are none, both are of the logits before that.
    due: a step could have been taken, where that is known; stepped: it was.
    missed: the batch came while the method was busy.
    drift, estimated…: of health after the batch, without labels: accuracy, its interval, and that
    of the source model, between 0 and 1. alarm: rings then. fallback: the source model answered.
    All None where not known.
    time: seconds of the adapter's step. memory: MB, the most so far. Both NaN where not known.
    """

    batch: int
    visit: int
    domains: tuple[str, ...]
    labels: Integers
    predicted: Integers
    confidence: Floats
    entropy: Floats
    missed: bool = False
    losses: Mapping[str, float] = field(default_factory=dict)
    images: Mapping[str, int] = field(default_factory=dict)
    reliable: int | None = None
    due: bool | None = None
    stepped: bool = False
    refused: str | None = None
    forwards: int = 0
    backwards: int = 0
    fallback: bool | None = None
    drift: float | None = None
    estimated: float | None = None
    estimated_low: float | None = None
    estimated_high: float | None = None
    estimated_frozen: float | None = None
    state: str | None = None
    alarm: bool | None = None
    time: float = math.nan
    memory: float = math.nan

    @classmethod
    def of(
        cls,
        logits: Tensor,
        labels: Tensor | ArrayLike,
        domains: str | Sequence[str],
        *,
        batch: int,
        visit: int = 0,
        missed: bool = False,
        last: Last | None = None,
        health: Health | None = None,
        time: float | None = None,
        memory: float = math.nan,
        uncorrected: Tensor | None = None,
    ) -> Seen:
        """`domains`: one for all images, or one for each. `last`, `health`: the adapter's. Without
        `time`, it is that of `last`; so are `uncorrected`, the logits whose softmax are
        probabilities, where those of `logits` are none."""
        known = _labels(logits, labels)
        names = (domains,) * len(known) if isinstance(domains, str) else tuple(domains)
        if len(names) != len(known):
            raise ValueError(f"{len(names)} domains of {len(known)} images: give one or as many.")
        if uncorrected is None and last is not None:
            uncorrected = last.uncorrected
        if uncorrected is not None and uncorrected.shape != logits.shape:
            raise ValueError(
                f"Logits of shape {tuple(logits.shape)}, and {tuple(uncorrected.shape)} before "
                "they were corrected: give what belongs to the same batch."
            )
        predicted, confidence, entropy = _predictions(logits, uncorrected)
        did = {} if health is None else _of_health(health)
        if last is not None:
            did |= {name: getattr(last, name) for name in ("losses", "images", *FROM_LAST)}
            time = last.seconds if time is None else time
        return cls(
            *(batch, visit, names, known, predicted, confidence, entropy, missed),
            time=math.nan if time is None else time,
            memory=memory,
            **did,
        )

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def domain(self) -> str | None:
        """The domain of all images, if there is one."""
        first = self.domains[0]
        return first if self.domains.count(first) == len(self.domains) else None

    def row(self) -> dict[str, Any]:
        """By column, with nothing but plain values. None: not known, or the term abstained."""
        return {
            "batch": self.batch,
            "visit": self.visit,
            "domain": MIXED if self.domain is None else self.domain,
            "domains": list(self.domains) if self.domain is None else None,
            "images": len(self),
            "scored": int((self.labels >= 0).sum()),
            "correct": int(((self.labels == self.predicted) & (self.labels >= 0)).sum()),
            "label": self.labels.tolist(),
            "predicted": self.predicted.tolist(),
            "confidence": self.confidence.tolist(),
            "entropy": self.entropy.tolist(),
            "missed": self.missed,
            **{name: getattr(self, name) for name in (*FROM_LAST, *OF_HEALTH)},
            **{LOSS + term: value for term, value in self.losses.items()},
            **{IMAGES + term: count for term, count in self.images.items()},
            "time": None if math.isnan(self.time) else self.time,
            "memory": None if math.isnan(self.memory) else self.memory,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Seen:
        # Files of version 0.1 do not say the first, those of 0.2 nothing of health.
        row = {**dict.fromkeys(("due", "fallback", *OF_HEALTH)), **row}
        return cls(
            batch=row["batch"],
            visit=row["visit"],
            domains=tuple(row["domains"] or [row["domain"]] * row["images"]),
            labels=np.array(row["label"], np.int32),
            predicted=np.array(row["predicted"], np.int32),
            confidence=np.array(row["confidence"], np.float32),
            entropy=np.array(row["entropy"], np.float32),
            missed=row["missed"],
            losses=_named(row, LOSS),
            images=_named(row, IMAGES),
            **{name: row[name] for name in (*FROM_LAST, *OF_HEALTH)},
            time=math.nan if row["time"] is None else row["time"],
            memory=math.nan if row["memory"] is None else row["memory"],
        )


def _of_health(health: Health) -> dict[str, Any]:
    low, high = (None, None) if health.interval is None else health.interval
    values = (health.drift, health.accuracy, low, high, health.frozen_accuracy)
    return dict(zip(OF_HEALTH, (*values, health.state, health.alarm), strict=True))


def _named(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {
        column.removeprefix(prefix): value
        for column, value in row.items()
        if column.startswith(prefix) and value is not None
    }


def _labels(logits: Tensor, labels: Tensor | ArrayLike) -> Integers:
    """The labels, or an error that says what does not fit."""
    if not isinstance(logits, Tensor):
        raise ValueError(f"Logits must be a torch.Tensor, not {type(logits).__name__}.")
    if logits.ndim != 2 or logits.numel() == 0 or not logits.is_floating_point():
        raise ValueError(
            f"Logits of shape {tuple(logits.shape)}, {logits.dtype}; expected floats of shape "
            "(images, classes), at least one of each."
        )
    array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.shape != logits.shape[:1]:
        raise ValueError(
            f"Labels of shape {array.shape} for {len(logits)} images; expected one class index "
            "each, −1 where an image is not scored."
        )
    if array.dtype.kind not in "iu":
        raise ValueError(f"Labels are {array.dtype}; expected class indices, as in labels.long().")
    if array.max() >= logits.shape[1]:
        raise ValueError(
            f"A label is {array.max()}, but logits have {logits.shape[1]} classes: labels go from "
            f"0 to {logits.shape[1] - 1}."
        )
    known: Integers = np.maximum(array.astype(np.int64), -1).astype(np.int32)
    return known


def _predictions(
    logits: Tensor, uncorrected: Tensor | None = None
) -> tuple[Integers, Floats, Floats]:
    """Predicted class, confidence and entropy of each image."""
    wide = _wide(logits)
    probabilities = (wide if uncorrected is None else _wide(uncorrected)).softmax(1)
    by_image = (
        # From the logits, since softmax may round two of them to the same probability.
        wide.argmax(1).float(),
        probabilities.amax(1).float(),
        torch.special.entr(probabilities).sum(1).float(),
    )
    # At once: on a GPU every copy waits for the device.
    host = torch.stack(by_image).cpu().numpy()
    predicted, confidence, entropy = host[0].astype(np.int32), host[1], host[2]
    undefined = np.isnan(confidence)
    if undefined.any():
        predicted[undefined], confidence[undefined] = -1, 0
        entropy[undefined] = math.log(logits.shape[1])
    return predicted, confidence, entropy


def _wide(logits: Tensor) -> Tensor:
    logits = logits.detach()
    return logits if logits.dtype == torch.float64 else logits.float()
