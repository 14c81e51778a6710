"""What the tensors of a source tell."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

from torch import Tensor

from holdfast.engine.estimators import Calibration
from holdfast.source.agreement import find_mistake
from holdfast.source.budgets import budgets_key
from holdfast.util.words import listed


def health_key(answers: str) -> str:
    """Below which a source keeps what answers of this kind are worth."""
    # 2: since the second opinion tells drift from labels by directions.
    return f"health/2/{answers}/"


@dataclass(eq=False, repr=False)
class Known:
    """What is known of a model's source, by name.

    `prototypes` are the class means of the raw features by true label, (classes, feature size),
    and `counts` says how many images stand behind each.
    """

    model_hash: str
    tensors: dict[str, Tensor]

    def __repr__(self) -> str:
        parts = dict.fromkeys(name.partition("/")[0] for name in self.tensors)
        made = [name for name in parts if name not in ("counts", "loader", "predicted", "spread")]
        size = ""
        if "prototypes/source" in self.tensors:
            classes, features = self.prototypes.shape
            images = int(self.counts.sum())
            size = f" of {images} images, {classes} classes, {features} features"
        return f"<Source{size}: {listed(made) or 'nothing made yet'}>"

    @property
    def prototypes(self) -> Tensor:
        return self.tensors["prototypes/source"]

    @property
    def counts(self) -> Tensor:
        return self.tensors["counts/source"]

    def width_of_classes(self, statistics: str) -> float:
        """σ: how far an image's feature lies from the mean of its class, as a root mean square."""
        counts = self.tensors[f"counts/{statistics}"]
        images, classes = int(counts.sum()), int((counts > 0).sum())
        # Means of few images lie nearer to these than to others of their class.
        squared = float(self.tensors[f"spread/{statistics}"]) * images / max(images - classes, 1)
        if not squared > 0:
            raise ValueError(
                f"{images} source images of {classes} classes do not tell how wide classes are, "
                "which balance=auto goes by: make the source of two or more images a class, or "
                "write balance=fixed."
            )
        return math.sqrt(squared)

    @property
    def accuracy(self) -> float | None:
        """The share of its images that the model takes for what their labels say, if known."""
        predicted = self.tensors.get("predicted/source")
        return None if predicted is None else float((predicted[0] == predicted[1]).double().mean())

    def find_label_mistake(self) -> str | None:
        """What seems wrong with its labels, and what to do."""
        if "predicted/source" not in self.tensors:
            return None
        labels, predicted = self.tensors["predicted/source"].long()
        return find_mistake(labels, predicted, len(self.counts))

    def _warn_of_labels(self) -> None:
        mistake = self.find_label_mistake()
        if mistake is not None:
            warnings.warn(f"The source's labels: {mistake}", stacklevel=3)

    @property
    def batch_size(self) -> int:
        """How many images the loader's first batch had."""
        return int(self.tensors["loader/batch_size"])

    def is_calibrated(self, answers: str) -> bool:
        """Whether it holds what answers of this kind are worth under drift."""
        rows = self.tensors.get(f"{health_key(answers)}rows")
        return rows is not None and rows.shape[-1] == Calibration.WIDTH

    def health_names(self, answers: str) -> tuple[str, ...]:
        """Of all of its tensors that estimates of health take."""
        return health_key(answers), budgets_key()
