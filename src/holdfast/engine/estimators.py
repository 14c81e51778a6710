"""Accuracy without labels, calibrated on labelled source images under drift of known kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.engine.last import Answer
from holdfast.engine.reference import SourceAnswer

# What is measured of images of one kind, as means: the adapter's confidence, and the probability
# that the second opinion gives the adapter's class; over images on which adapter and source model
# disagree (0 on others), that there are such, the second opinion's probabilities of the classes of
# both, and the confidence of both; and how far the images have drifted.
COLUMNS = (
    "confidence",
    "seconded",
    "apart",
    "apart_seconded",
    "apart_frozen_seconded",
    "apart_confidence",
    "apart_frozen_confidence",
    "drift",
)
# What accuracy and gain are estimated by, of these.
FOR_ACCURACY = slice(0, 2)
FOR_GAIN = slice(2, 7)
# What speaks for one of the two cannot count for the other.
SIGNS = torch.tensor([0, 1, -1, 1, -1])

# Keeps the coefficients of what hardly varies on the calibration's images near 0.
RIDGE = 0.05
# Predictions are in fewer classes where their entropy is below this share of the source model's.
FEWER = 0.9
# How many images of the calibration are a batch, where it is not known which were one.
BATCH = 64
# Of a normal law, 90 % lie within so many deviations.
NINETY = 1.645


@dataclass(frozen=True)
class Measured:
    """What is seen of a batch without labels: for each kind of image in it `COLUMNS` and the share
    of the batch that it is; the entropies of the mean prediction, the adapter's and the source
    model's; of each image confidence and entropy; and accuracy as dropout tells it, where that was
    asked for."""

    kinds: Tensor
    shares: Tensor
    evenness: Tensor
    confidences: Tensor
    entropies: Tensor
    by_dropout: float = 0.0

    @classmethod
    def of(cls, answer: Answer, seen: SourceAnswer, by_dropout: float = 0.0) -> Measured:
        """answer: the adapter's, to the images that `seen` is of."""
        own, frozen, uncorrected = (
            each.detach().cpu().double()
            for each in (answer.logits, seen.logits, answer.uncorrected)
        )
        probabilities, second = uncorrected.softmax(1), seen.second.cpu().double().softmax(1)
        classes, frozen_classes = own.argmax(1), frozen.argmax(1)
        confidence, frozen_confidence = probabilities.amax(1), frozen.softmax(1).amax(1)
        seconded, frozen_seconded = (
            second.gather(1, each[:, None])[:, 0] for each in (classes, frozen_classes)
        )
        apart = (classes != frozen_classes).double()
        of_apart = torch.stack(
            [torch.ones_like(apart), seconded, frozen_seconded, confidence, frozen_confidence]
        )
        each_image = torch.stack([confidence, seconded, *(apart * of_apart)], 1)
        rows = [
            torch.cat([each_image[kind.images].mean(0), torch.tensor([kind.drift])])
            for kind in seen.kinds
        ]
        shares = torch.tensor([len(kind.images) for kind in seen.kinds]).double() / len(own)
        means = torch.stack([probabilities.mean(0), frozen.softmax(1).mean(0)])
        evenness, entropies = (torch.special.entr(each).sum(1) for each in (means, probabilities))
        return cls(torch.stack(rows), shares, evenness, each_image[:, 0], entropies, by_dropout)

    @property
    def drift(self) -> float:
        return float(self.kinds[:, COLUMNS.index("drift")] @ self.shares)


@dataclass(frozen=True)
class Estimate:
    """Accuracy of the adapter's answers and of the source model's on the same images; `gain` is
    how much the first is estimated to be above the second."""

    accuracy: float
    frozen: float
    gain: float


@dataclass(frozen=True, eq=False)
class Calibration:
    """Batches of labelled source images under drift, as the adapter answers before it has learnt.

    rows: of each batch, or kind of image in it, the accuracy, that of the source model, `COLUMNS`.
    groups: which kind of drift each row has; 0: none. few: which rows are of batches of a few
    classes; they tell what adapting to such costs, and nothing else is learnt from them. images: of
    each image's answer the confidence and the entropy, whether it was right, and the image's kind
    of drift.
    """

    WIDTH: ClassVar[int] = 2 + len(COLUMNS)

    rows: Tensor
    groups: Tensor
    few: Tensor
    images: Tensor

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Calibration:
        return cls(*(tensors[name] for name in ("rows", "groups", "few", "images")))

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {"rows": self.rows, "groups": self.groups, "few": self.few, "images": self.images}

    def estimate(self, measured: Measured) -> Estimate:
        """By confidence, and by how far the second opinion agrees.

        Of images on which adapter and source model agree neither is the better one, so that the
        gain is a sum over those on which they do not. Two kinds of image in a batch are judged each
        by itself: what is a good answer to one kind may be none to the other.

        What was calibrated had not learnt yet, and learning can go wrong in ways that confidence
        does not show. A model that is surer than any in the calibration counts as sure as these;
        and one whose predictions fall into fewer classes than the source model's on the same images
        is right less often (by the third power, as in AETTA).
        """
        kinds = measured.kinds.clone()
        surest = float(_column(self.rows[~self.few, 2:], "confidence").max())
        _column(kinds, "confidence").clamp_max_(surest)
        sure = _column(kinds, "apart_confidence")
        sure.copy_(sure.minimum(surest * _column(kinds, "apart")))
        accuracy, gain = self.accuracy_and_gain(kinds)
        accuracy = accuracy.clamp(0, 1)
        frozen = (accuracy - gain).clamp(0, 1)
        own, reference = measured.evenness.tolist()
        fallen = min(1.0, own / max(FEWER * reference, 1e-12)) ** 3
        if fallen < 1:
            accuracy = accuracy * fallen
            gain = accuracy - frozen
        return Estimate(*(float(each @ measured.shares) for each in (accuracy, frozen, gain)))

    def by_confidence(self, confidences: Tensor) -> float:
        """Difference of confidences (Guillory et al. 2021), as a line through the calibration."""
        return float((_line(confidences.mean()[None]) @ self._confidence).clamp(0, 1))

    def by_threshold(self, entropies: Tensor) -> float:
        """The share of images below an entropy that as many of the calibration's lie below as are
        right (Garg et al. 2022, ATC)."""
        return float((entropies < self._threshold).double().mean())

    def accuracy_and_gain(self, columns: Tensor) -> tuple[Tensor, Tensor]:
        """By agreement, of each row: the accuracy, and the gain over the source model."""
        accuracy = _line(columns[:, FOR_ACCURACY]) @ self._for_accuracy
        return accuracy, columns[:, FOR_GAIN] @ self._for_gain

    @cached_property
    def _for_accuracy(self) -> Tensor:
        rows = self.rows[~self.few]
        return _ridge(_line(rows[:, 2:][:, FOR_ACCURACY]), rows[:, 0])

    @cached_property
    def _for_gain(self) -> Tensor:
        own, frozen, columns = self.rows[:, 0], self.rows[:, 1], self.rows[:, 2:]
        # A quarter of the images, a quarter of the weight: by squares, half.
        weight = 1 - 0.5 * self.few.double()
        return _signed_ridge(weight[:, None] * columns[:, FOR_GAIN], weight * (own - frozen), SIGNS)

    @cached_property
    def _confidence(self) -> Tensor:
        rows = self.rows[~self.few]
        return _ridge(_line(rows[:, 2:3]), rows[:, 0])

    @cached_property
    def _threshold(self) -> float:
        _, entropy, right, _ = self.images
        return float(entropy.quantile(right.mean()))

    @cached_property
    def half_widths(self) -> dict[str, float]:
        """Of an interval that holds the accuracy of 90 % of batches, by the estimators that are
        calibrated: estimates of each kind of drift by what the others tell."""
        found: dict[str, list[Tensor]] = {"agreement": [], "doc": [], "atc": []}
        for group in sorted(set(self.groups.tolist())):
            others = self._without(group)
            if not len(others.rows):
                return dict.fromkeys(found, 0.5)
            rows = self.rows[(self.groups == group) & ~self.few]
            images = self.images[:, self.images[3] == group]
            by_agreement, _ = others.accuracy_and_gain(rows[:, 2:])
            found["agreement"].append(by_agreement.clamp(0, 1) - rows[:, 0])
            by_line = _line(rows[:, 2:3]) @ others._confidence
            found["doc"].append(by_line.clamp(0, 1) - rows[:, 0])
            for batch in torch.split(images, BATCH, dim=1):
                error = others.by_threshold(batch[1]) - float(batch[2].mean())
                found["atc"].append(torch.tensor([error], dtype=torch.float64))
        errors = {name: torch.cat(parts) for name, parts in found.items()}
        return {name: NINETY * float(each.square().mean().sqrt()) for name, each in errors.items()}

    def _without(self, group: int) -> Calibration:
        rows, images = self.groups != group, self.images[3] != group
        return Calibration(
            self.rows[rows], self.groups[rows], self.few[rows], self.images[:, images]
        )

    @cached_property
    def home(self) -> Tensor:
        """The accuracy, confidence and entropy of clean source images; the first as estimated."""
        clean = self.images[:, self.images[3] == 0]
        accuracy, _ = self._clean
        return torch.stack([accuracy.clamp(0, 1).mean(), *clean[:2].mean(1)])

    @cached_property
    def frozen_home(self) -> float:
        """The source model's accuracy there, as estimated."""
        accuracy, gain = self._clean
        return float((accuracy.clamp(0, 1) - gain).clamp(0, 1).mean())

    @cached_property
    def _clean(self) -> tuple[Tensor, Tensor]:
        return self.accuracy_and_gain(self.rows[(self.groups == 0) & ~self.few, 2:])


def _column(rows: Tensor, name: str) -> Tensor:
    return rows[..., COLUMNS.index(name)]


def _line(columns: Tensor) -> Tensor:
    return torch.cat([torch.ones_like(columns[..., :1]), columns], -1)


def _ridge(inputs: Tensor, target: Tensor) -> Tensor:
    penalty = RIDGE * torch.eye(inputs.shape[1], dtype=inputs.dtype)
    found: Tensor = torch.linalg.solve(inputs.T @ inputs + penalty, inputs.T @ target)
    return found


def _signed_ridge(inputs: Tensor, target: Tensor, signs: Tensor) -> Tensor:
    """The same among coefficients of these signs (0: either). The best has some of them at 0, and
    the others are the best by themselves: all such choices are tried."""
    found, least = torch.zeros_like(inputs[0]), float("inf")
    for choice in product((False, True), repeat=inputs.shape[1]):
        kept, weights = torch.tensor(choice), torch.zeros_like(inputs[0])
        weights[kept] = _ridge(inputs[:, kept], target)
        loss = float((inputs @ weights - target).square().sum() + RIDGE * weights.square().sum())
        if bool((weights * signs >= 0).all()) and loss < least:
            found, least = weights, loss
    return found
