"""prior: predictions are corrected by how often each class is predicted in the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from holdfast import Method, register
from holdfast.parts import Predicted, Refine, Step, Task, logits_of


def batch_prior(logits: Tensor) -> Tensor:
    """How often each class is predicted, smoothed: (m + s)/(1 + sC), m being the mean prediction
    and s = max(1/B, 1/C)/max(m)."""
    images, classes = logits.shape
    mean = logits.softmax(1).mean(0)
    smooth = max(1 / images, 1 / classes) / mean.amax()
    return (mean + smooth) / (1 + smooth * classes)


def correct_logits(logits: Tensor) -> Tensor:
    """Logits times the prior, as released."""
    return logits * batch_prior(logits)


def correct_probabilities(logits: Tensor) -> Tensor:
    """Logits whose softmax is that of `logits` times the prior, normalised."""
    return logits + batch_prior(logits).log()


class LogitCorrection(Refine):
    """By the batch as a whole, a window's images too."""

    keeps_probabilities = False
    correct: Callable[[Tensor], Tensor] = staticmethod(correct_logits)

    def forward(self, logits: Tensor, step: Step) -> Predicted:
        return Predicted(self.correct(logits))

    def module(self, predictor: nn.Module, head: str, exact: bool) -> nn.Module:
        """What serves single images has no batch to correct by: it is the predictor as it is."""
        return Corrected(predictor, self.correct) if exact else predictor


class ProbabilityCorrection(LogitCorrection):
    keeps_probabilities = True
    correct = staticmethod(correct_probabilities)


class Corrected(nn.Module):
    """A predictor whose answers to each batch are corrected."""

    def __init__(self, predictor: nn.Module, correct: Callable[[Tensor], Tensor]):
        super().__init__()
        self.predictor = predictor
        self.correct = correct

    def forward(self, images: Tensor) -> Tensor:
        return self.correct(logits_of(self.predictor(images)))


NOT_WITH_LAME = (
    "prior multiplies logits, and lame gives log-probabilities: none is above 0, so that frequent "
    "classes would be pushed down instead of up. Write one of the two, as in tent+prior or "
    "tent+lame."
)


@register("prior")
@dataclass(frozen=True)
class Prior(Method):
    """Multiplies logits by how often each class is predicted in the batch, smoothed.

    z ← z · (m + s)/(1 + sC), m = batch mean of p, s = max(1/B, 1/C)/max m
    """

    paper: ClassVar[str] = (
        "Marsden, Döbler, Yang 2024, Universal test-time adaptation through weight ensembling, "
        "diversity weighting, and prior correction, arXiv 2306.00650"
    )
    note: ClassVar[str] = (
        "ROID's prior correction, by itself. What leaves are scores to take the largest of: their "
        "softmax are no probabilities (logits shrink about C-fold, and a negative one of a "
        "frequent class is pushed further down). Confidence, entropy and calibration in runs and "
        "in adapter.health are those of the logits before the correction, which are in "
        "adapter.last.uncorrected and adapter.answer(images). frozen(statistics='batch') corrects "
        "each batch that it is given; frozen() serves single images, which have no batch to go by, "
        "and does not correct. Not to be taken for bn's setting of that name, which counts pseudo "
        "source images. It goes by the sign of logits as the head gives them: on a model that "
        "returns log-probabilities, none of which is above 0, it pushes frequent classes down; "
        "write roid(correct=probabilities) there, or leave it out. So it does not go with lame, "
        "which gives such. Published with ROID only."
    )
    plugin: ClassVar[bool] = True
    groups: ClassVar[bool] = True
    standalone: ClassVar[bool] = False
    needs_host: ClassVar[bool] = True
    needs_steps: ClassVar[bool] = False
    neutral: ClassVar = None

    def objection_after(self, before: tuple[Method, ...]) -> str | None:
        return NOT_WITH_LAME if any(plugin.name == "lame" for plugin in before) else None

    def objection(self, host: Method | None) -> str | None:
        return (
            NOT_WITH_LAME if host is not None and host.name == "lame" else super().objection(host)
        )

    def refine(self, task: Task) -> list[Refine]:
        return [LogitCorrection()]

    def keeps_probabilities(self) -> bool:
        return False
