"""Watches an adapter without labels: what it measures, what it makes of that, and when it rings."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from holdfast.engine.dropout import DropoutDisagreement
from holdfast.engine.estimators import Calibration, Measured
from holdfast.engine.evidence import Evidence
from holdfast.engine.health import (
    ADVICE,
    BOTH_HURT,
    COSTS,
    DRIFT_HURTS,
    HARMS,
    IN_FALLBACK,
    NOT_YET,
    UNKNOWN,
    Health,
    HealthOptions,
    State,
)
from holdfast.engine.last import Answer, Watch
from holdfast.engine.network import Network
from holdfast.engine.reference import Reference

# A batch of n images counts n / (n + REACH) in averages.
REACH = 64
# An estimate is made over so many images at least: of a few, whether two models agree is a toss.
POOL = 32
# Below this, images are as the source's; what drift costs less than this is none.
DRIFT = 0.1
# How much worse than the source model an adapter may seem, and how much worse than at home.
HARM, RISK = 0.02, 0.05
# What is better than the source model counts as so much better at most: no more than may be lost,
# since the less counts for it, the higher a bet may be.
FLOOR = 0.02
# Of the level, what is for harm, on which a guard acts; the rest is for drift.
FOR_HARM = 0.8


class Monitor(nn.Module):
    """Its buffers are its state. Without a calibration it knows nothing of accuracy and drift.

    recent: averages of confidence and entropy. estimates: the latest of accuracy, that of the
    source model, drift, and gain over the source model; pool: their sums since they were last taken
    in, and the images in it. fallen: whether predictions had collapsed.
    """

    recent: Tensor
    weight: Tensor
    pool: Tensor
    estimates: Tensor
    estimated: Tensor
    batches: Tensor
    alarms: Tensor
    fallen: Tensor

    def __init__(self, options: HealthOptions, every: int, network: Network, seed: int):
        super().__init__()
        self.options, self.every = options, every
        self.reference: Reference | None = None
        self.calibration: Calibration | None = None
        # Whether the latest estimate found the adapter as good as the source model; None: no news.
        self.as_good: bool | None = None
        by_dropout = options.estimator == "aetta"
        self.dropout = DropoutDisagreement(network, seed=seed) if by_dropout else None
        double = torch.float64
        self.register_buffer("recent", torch.zeros(2, dtype=double))
        self.register_buffer("weight", torch.zeros((), dtype=double))
        self.register_buffer("pool", torch.zeros(5, dtype=double))
        self.register_buffer("estimates", torch.zeros(4, dtype=double))
        self.register_buffer("estimated", torch.zeros((), dtype=torch.bool))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.register_buffer("alarms", torch.zeros((), dtype=torch.int64))
        self.register_buffer("fallen", torch.zeros((), dtype=torch.bool))
        self.harm = Evidence(FOR_HARM * options.level, HARM, FLOOR)
        self.risk = Evidence((1 - FOR_HARM) * options.level, RISK, FLOOR)
        self.frozen_watch = Watch(network.head_rows) if network.head_name else None

    def begin(self, reference: Reference, calibration: Calibration) -> None:
        """From now on it can estimate."""
        self.reference, self.calibration = reference, calibration

    @property
    def due(self) -> bool:
        """Whether this batch is one that is measured."""
        return self.reference is not None and int(self.batches) % self.every == 0

    def measure(self, images: Tensor, answer: Answer) -> tuple[Measured | None, Tensor]:
        """What is seen of these images, answered so, and the source model's answer. Of answers that
        are not finite nothing is."""
        assert self.reference is not None  # `due` has seen to it
        seen = self.reference(images)
        if not all(bool(each.isfinite().all()) for each in (*answer, seen.logits, seen.second)):
            return None, seen.logits
        if self.frozen_watch is not None and seen.logits.shape[1] == len(
            self.frozen_watch.frequency
        ):
            self.frozen_watch(seen.logits.argmax(1))
        # Views under dropout are not corrected either.
        by_dropout = 0.0 if self.dropout is None else self.dropout(images, answer.uncorrected)
        return Measured.of(answer, seen, by_dropout), seen.logits

    def forward(
        self, logits: Tensor, measured: Measured | None, *, by_source: bool = False
    ) -> list[str]:
        """Take in a batch that was answered, by logits whose softmax are probabilities, and what
        was measured of it; what there is to tell. by_source: the source model answered, and what
        was measured is of a state that is only tried."""
        self.batches += 1
        probabilities = logits.detach().cpu().double().softmax(1)
        share = len(logits) / (len(logits) + REACH)
        fresh = torch.stack(
            [probabilities.amax(1).mean(), torch.special.entr(probabilities).sum(1).mean()]
        )
        self.recent.lerp_(fresh, share)
        self.weight.copy_(1 - (1 - self.weight) * (1 - share))
        self.as_good = None
        return [] if measured is None else self._estimate(measured, len(logits), by_source)

    def _estimate(self, measured: Measured, images: int, by_source: bool) -> list[str]:
        assert self.calibration is not None  # something was measured
        found = self.calibration.estimate(measured)
        accuracy = {
            "agreement": found.accuracy,
            "doc": self.calibration.by_confidence(measured.confidences),
            "atc": self.calibration.by_threshold(measured.entropies),
            "aetta": measured.by_dropout,
        }[self.options.estimator]
        latest = accuracy, found.frozen, measured.drift, found.gain, 1.0
        self.pool += images * torch.tensor(latest, dtype=torch.float64)
        if float(self.pool[-1]) < POOL:
            return []
        fresh = self.pool[:-1] / self.pool[-1]
        self.pool.zero_()
        self.estimates.copy_(fresh)
        self.estimated.fill_(True)
        accuracy, frozen, drift, gain = fresh.tolist()
        self.as_good = gain > -HARM
        news = []
        if self.harm(-gain):
            news.append(HARMS)
        home = self.calibration.frozen_home if by_source else float(self.calibration.home[0])
        if self.risk(drift * (home - (frozen if by_source else accuracy))):
            news.append(COSTS)
        self.alarms += len(news)
        return news

    # What comes of it.

    def collapsed(self, watch: Watch | None) -> bool:
        """Whether predictions fall into a few classes, and the source model's not into the same."""
        if watch is None or not bool(watch.alarmed):
            return False
        frozen = self.frozen_watch
        if self.reference is None or frozen is None or not int(frozen.images):
            return True
        # Of answers in one class that are in other classes than the source model's, these are no
        # excuse: far from home it may fall into one class too.
        return watch.spread() < 0.5 * frozen.spread() or watch.overlap(frozen) < 0.5

    def collapses(self, watch: Watch) -> bool:
        """Whether they have just begun to."""
        now = self.collapsed(watch)
        news = now and not bool(self.fallen)
        self.fallen.fill_(now)
        self.alarms += news
        return news

    def state(self, watch: Watch | None, learns: bool) -> State:
        if self.collapsed(watch):
            return "collapsed"
        if bool(self.harm.rings):
            return "degrading"
        drifted = float(self.estimates[2]) > DRIFT if self.reference is not None else learns
        return "adapting" if drifted else "stable"

    def health(
        self,
        watch: Watch | None,
        step_rate: float | None,
        distance: Callable[[], float],
        fallback: bool,
    ) -> Health:
        """All that is known now."""
        state = self.state(watch, step_rate is not None and step_rate > 0)
        rings = bool(self.harm.rings | self.risk.rings)
        advice = ADVICE[state]
        if state in ("degrading", "collapsed"):
            advice = IN_FALLBACK if fallback else advice
            advice = f"{advice} {BOTH_HURT}" if bool(self.risk.rings) else advice
        elif rings:
            advice = DRIFT_HURTS
        elif self.calibration is None:
            advice = UNKNOWN
        elif not bool(self.estimated):
            advice = NOT_YET
        known = dict[str, object]()
        if self.calibration is not None:
            _, confidence, entropy = self.calibration.home.tolist()
            known = {
                "source_entropy": entropy,
                "source_confidence": confidence,
                "estimator": self.options.estimator,
                "risk_bound": self.risk.bound,
            }
        if self.calibration is not None and bool(self.estimated):
            accuracy, frozen, drift, _ = self.estimates.tolist()
            if fallback:  # the source model's answers are given; the adapter's are only tried
                accuracy = frozen
            width = self.calibration.half_widths.get(self.options.estimator)
            if width is not None:
                known["interval"] = max(accuracy - width, 0.0), min(accuracy + width, 1.0)
            known |= {
                "accuracy": accuracy,
                "frozen_accuracy": frozen,
                "drift": drift,
            }
        if float(self.weight):
            known["confidence"], known["entropy"] = (self.recent / self.weight).tolist()
        return Health(
            state=state,
            advice=advice,
            spread=None if watch is None or not int(watch.images) else watch.spread(),
            step_rate=step_rate,
            distance=distance(),
            alarm=rings or state == "collapsed",
            alarms=int(self.alarms),
            fallback=fallback,
            **known,  # type: ignore[arg-type]
        )
