"""What Prometheus is told. Streams are no label, since there may be thousands: quantiles over all
of them, and the worst few by name."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from holdfast.serving.service import Service
from holdfast.serving.tally import BOUNDS, Times
from holdfast.serving.watching import Seen

QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)
WORST = 5
# Streams without an image for so many seconds say nothing of now.
ACTIVE = 600.0

# Name, meaning, where it is read, and whether little of it is what is bad.
Reading = Callable[[Seen], float | None]
ACROSS: tuple[tuple[str, str, Reading, bool], ...] = (
    (
        "estimated_accuracy",
        "Accuracy of late, estimated without labels.",
        lambda seen: seen.health.accuracy,
        True,
    ),
    ("entropy", "Mean entropy of predictions of late.", lambda seen: seen.health.entropy, False),
    (
        "spread",
        "1: all classes are predicted alike; 0: one is all that is left.",
        lambda seen: seen.health.spread,
        True,
    ),
    (
        "prediction_share_max",
        "Share of the class that is predicted most of late.",
        lambda seen: seen.largest,
        False,
    ),
    (
        "distance_from_source",
        "Of the weights that train, relative to the source's.",
        lambda seen: seen.health.distance,
        False,
    ),
)


class ServiceCollector(Collector):
    """Reads a service whenever Prometheus asks."""

    def __init__(self, service: Service):
        self.service = service

    def collect(self) -> Iterator[Metric]:
        yield from self._counts()
        yield from self._now()
        yield from self._over_streams()

    def _counts(self) -> Iterator[Metric]:
        tally = self.service.tally
        for name, meaning, value in (
            ("images", "Images that were answered.", tally.images),
            ("repeated", "Requests that had been answered before.", tally.repeated),
            ("snapshots", "Streams that were saved.", tally.snapshots),
            ("snapshot_failures", "Saves that failed.", tally.unsaved),
            ("collapse", "Times that predictions fell into a few classes.", tally.collapses),
            ("rollback", "Times that a healthy state was put back.", tally.rollbacks),
        ):
            yield CounterMetricFamily(f"holdfast_{name}", meaning, value=value)
        steps = CounterMetricFamily(
            "holdfast_steps", "Batches of a stream, by what came of them.", labels=["outcome"]
        )
        for outcome in ("applied", "refused", "skipped"):
            steps.add_metric([outcome], tally.outcomes[outcome])
        yield steps
        away = CounterMetricFamily(
            "holdfast_turned_away", "Requests that there was no room for.", labels=["reason"]
        )
        for reason in ("waiting", "streams"):
            away.add_metric([reason], tally.turned_away[reason])
        yield away
        yield _histogram("step_seconds", "One step, of all streams that share it.", tally.steps)
        yield _histogram("wait_seconds", "From a request to its step.", tally.waits)

    def _now(self) -> Iterator[Metric]:
        service = self.service
        for name, meaning, value in (
            ("streams", "Streams that were served since the start.", len(service.watched.all())),
            ("waiting_images", "Images that wait for their step.", service.waiting),
            ("alarms", "Streams whose alarm rings.", len(service.watched.alarms())),
            ("troubled_streams", "Streams that are refused.", len(service.keeper.troubles)),
            ("state_age_seconds", "Of the oldest change not yet saved.", service.keeper.age()),
        ):
            yield GaugeMetricFamily(f"holdfast_{name}", meaning, value=value)

    def _over_streams(self) -> Iterator[Metric]:
        now = time.monotonic()
        active = {
            stream: seen
            for stream, seen in self.service.watched.all().items()
            if now - seen.at < ACTIVE
        }
        for name, meaning, read, little_is_bad in ACROSS:
            known = {s: value for s, seen in active.items() if (value := read(seen)) is not None}
            yield from _quantiles(f"holdfast_{name}", meaning, known, little_is_bad)


def _quantiles(
    name: str, meaning: str, known: dict[str, float], little_is_bad: bool
) -> Iterator[Metric]:
    over = GaugeMetricFamily(name, f"{meaning} Quantiles over streams.", labels=["quantile"])
    worst = GaugeMetricFamily(f"{name}_worst", f"{meaning} The worst streams.", labels=["stream"])
    if known:
        for at, value in zip(QUANTILES, np.quantile(list(known.values()), QUANTILES), strict=True):
            over.add_metric([f"{at:g}"], float(value))
    order = sorted(known, key=lambda stream: known[stream], reverse=not little_is_bad)
    for stream in order[:WORST]:
        worst.add_metric([stream], known[stream])
    yield over
    yield worst


def _histogram(name: str, meaning: str, times: Times) -> Metric:
    found = HistogramMetricFamily(f"holdfast_{name}", meaning)
    bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    sums = np.cumsum(times.counts).tolist()
    found.add_metric([], buckets=list(zip(bounds, sums, strict=True)), sum_value=times.total)
    return found


def collect(service: Service) -> list[Metric]:
    """All that one server has to tell."""
    return list(ServiceCollector(service).collect())


class Gathered(Collector):
    """What several servers have collected, by the name of each, which becomes a label where there
    is one."""

    def __init__(self, told: Mapping[str, list[Metric]]):
        self.told = told

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for name, collected in self.told.items():
            for metric in collected:
                family = families.setdefault(
                    metric.name, Metric(metric.name, metric.documentation, metric.type)
                )
                label = {"replica": name} if name else {}
                family.samples += [
                    sample._replace(labels={**sample.labels, **label}) for sample in metric.samples
                ]
        yield from families.values()


def exposition(told: Mapping[str, list[Metric]]) -> bytes:
    """What GET /metrics answers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Gathered(told))
    return generate_latest(registry)
