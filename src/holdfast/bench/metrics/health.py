"""Health along a run: what was estimated without labels, beside what labels say."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from holdfast.bench.manifest import Metrics
from holdfast.bench.metrics.seen import Seen
from holdfast.bench.metrics.tally import mean, ratio

BAD = ("degrading", "collapsed")


class HealthTally:
    """Estimates of accuracy by domain, and how often health was bad."""

    def __init__(self) -> None:
        self.alarm: int | None = None
        """The first batch at which the alarm rang."""
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._images: Counter[str] = Counter()
        self._told = self._bad = self._answered = self._by_fallback = 0

    def add(self, seen: Seen) -> None:
        if seen.estimated is not None:
            scored = zip(seen.domains, seen.labels.tolist(), strict=True)
            for domain, images in Counter(name for name, label in scored if label >= 0).items():
                self._sums[domain] += seen.estimated * images
                self._images[domain] += images
        if seen.alarm and self.alarm is None:
            self.alarm = seen.batch
        if seen.state is not None:
            self._told += 1
            self._bad += seen.state in BAD
        if seen.fallback is not None:
            self._answered += 1
            self._by_fallback += seen.fallback

    @property
    def estimates(self) -> dict[str, float]:
        """Estimated accuracy by domain in %, the mean over scored images that have an estimate."""
        return {name: 100 * self._sums[name] / count for name, count in self._images.items()}

    def metrics(self, scores: Mapping[str, float]) -> Metrics:
        """scores: the true accuracy by domain, in %."""
        estimates = self.estimates
        errors = {name: abs(value - scores[name]) for name, value in estimates.items()}
        return {
            "estimate_error": mean(errors.values()),
            "alarm": self.alarm,
            "unhealthy": ratio(self._bad, self._told),
            "fallback": ratio(self._by_fallback, self._answered),
            **{f"estimated/{name}": value for name, value in estimates.items()},
            **{f"estimate_error/{name}": value for name, value in errors.items()},
        }
