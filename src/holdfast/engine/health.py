"""How an adapter does, as far as that can be told without labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["stable", "adapting", "degrading", "collapsed"]
Estimator = Literal["agreement", "doc", "atc", "aetta"]
Guard = Literal["alarm", "none", "rollback", "fallback"]

ESTIMATORS: tuple[Estimator, ...] = ("agreement", "doc", "atc", "aetta")
GUARDS: tuple[Guard, ...] = ("alarm", "none", "rollback", "fallback")

# What rings.
HARMS = "adapting seems to do harm, since the source model alone would do better"
COSTS = "the model is less accurate here than on source images"

ADVICE: dict[State, str] = {
    "stable": "Nothing to do.",
    "adapting": "Nothing to do: images have drifted, and adapting is no worse than not adapting.",
    "degrading": (
        "Adapting does harm here: add +steady, lower lr, give larger or better mixed batches; "
        "reset() starts again, guard='fallback' answers with the source model while this lasts."
    ),
    "collapsed": (
        "Predictions fall into a few classes: reset(), and lower lr or add +debias; "
        "guard='rollback' or 'fallback' goes back by itself."
    ),
}
IN_FALLBACK = (
    "Adapting does harm here, and the source model answers while this lasts: add +steady, lower "
    "lr, give larger or better mixed batches."
)
UNKNOWN = (
    "How the model does here, and whether adapting helps, is not known: that takes a source that "
    "was made with drifted=holdfast.data.holdout.drifted(loader)."
)
NOT_YET = "Nothing has been estimated yet: that takes 32 images or more, every few batches."
LABEL = "label some of these images, and retrain if they are to stay."
RETRAIN = f"Adapting is not to blame, and no guard acts on it: {LABEL}"
DRIFT_HURTS = f"{COSTS.capitalize()}. {RETRAIN}"
BOTH_HURT = f"Besides, {COSTS}: {LABEL}"
NOT_CALIBRATED = (
    "guard='fallback' compares the adapter with the source model, which takes a source that was "
    "calibrated for that: Source.from_loader(model, loader, "
    "drifted=holdfast.data.holdout.drifted(loader)); on the command line, --source with images, or "
    "--validation. guard='rollback' does without."
)


@dataclass(frozen=True)
class HealthOptions:
    """How health is watched, where the source is calibrated for it.

    estimator: of accuracy: "agreement" with the source model under the statistics of steady, "doc"
        (difference of confidences), "atc" (average thresholded confidence), "aetta" (disagreement
        under dropout).
    every: measure every so many batches; None: 8, and 1 with guard="fallback".
    level: the chance that the alarm ever rings on a stream without drift.
    """

    estimator: Estimator = "agreement"
    every: int | None = None
    level: float = 0.05

    def __post_init__(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise ValueError(
                f"estimator is one of {', '.join(ESTIMATORS)}, not {self.estimator!r}."
            )
        if self.every is not None and (not isinstance(self.every, int) or self.every < 1):
            raise ValueError(f"every is a number of batches, at least 1, not {self.every!r}.")
        if not isinstance(self.level, int | float) or not 0 < self.level < 1:
            raise ValueError(
                f"level is a chance between 0 and 1, such as 0.05, not {self.level!r}."
            )


@dataclass(frozen=True)
class Health:
    """Shares and accuracies are between 0 and 1; None: not known.

    state: "stable": like the source; "adapting": images have drifted, and adapting is no worse than
        not adapting; "degrading": it is worse; "collapsed": predictions fall into a few classes.
        Each lasts as long as it holds. Without a calibration the first two tell only whether steps
        are taken, and `advice` that no more is known.
    advice: what to do.
    drift: how far images are from the source's: 0, no further than source images are from each
        other; towards 1, far more.
    accuracy: estimated, of the images that were measured last; `interval`: where that of 90 % of
        batches lies that are estimated so; by `estimator`. In fallback, of the source model.
    frozen_accuracy: estimated, of the source model on the same images.
    risk_bound: estimated risk due to drift is above this at the level asked for, at all times.
    spread: 1 when all classes are predicted alike, 0 when one is all that is left.
    entropy, confidence: mean of late; `source_…`: on clean source images.
    step_rate: share of the steps that were due that were taken, of late.
    distance: of the weights that train from the source's, relative to these.
    alarm: rings now. alarms: how often it has begun to.
    fallback: whether the source model answers, in place of the adapted one.
    """

    state: State = "stable"
    advice: str = UNKNOWN
    drift: float | None = None
    accuracy: float | None = None
    interval: tuple[float, float] | None = None
    estimator: Estimator | None = None
    frozen_accuracy: float | None = None
    risk_bound: float | None = None
    spread: float | None = None
    entropy: float | None = None
    source_entropy: float | None = None
    confidence: float | None = None
    source_confidence: float | None = None
    step_rate: float | None = None
    distance: float = 0.0
    alarm: bool = False
    alarms: int = 0
    fallback: bool = False

    def __str__(self) -> str:
        """What a person looks at first, in a line."""
        told: list[str] = [self.state]
        if self.accuracy is not None:
            low, high = self.interval or (None, None)
            within = "" if low is None or high is None else f" ({low:.0%} to {high:.0%})"
            told.append(f"estimated accuracy {self.accuracy:.0%}{within}")
        if self.frozen_accuracy is not None:
            told.append(f"the source model's {self.frozen_accuracy:.0%}")
        if self.drift is not None:
            told.append(f"drift {self.drift:.2f}")
        if self.alarm:
            told.append("an alarm rings")
        if self.fallback:
            told.append("the source model answers")
        return f"{', '.join(told)}. {self.advice}"
