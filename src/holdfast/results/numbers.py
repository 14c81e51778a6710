"""A number over several runs, and the difference of two, run by run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

NONE = "–"


@dataclass(frozen=True)
class Number:
    """A mean over runs, and its standard deviation as of a sample; NaN where there is none."""

    value: float = math.nan
    std: float = math.nan
    by_run: Mapping[str, float] = field(default_factory=dict)
    """Each run's, by what tells runs apart. Empty of a published number."""

    @classmethod
    def over(cls, by_run: Mapping[str, float]) -> Number:
        """Over the runs that define it."""
        known = {run: value for run, value in by_run.items() if math.isfinite(value)}
        if not known:
            return cls()
        std = statistics.stdev(known.values()) if len(known) > 1 else math.nan
        return cls(statistics.fmean(known.values()), std, known)

    def __bool__(self) -> bool:
        """Whether it is known."""
        return math.isfinite(self.value)

    def minus(self, other: Number) -> Number:
        """Run by run where both have the same ones."""
        if self.by_run and self.by_run.keys() == other.by_run.keys():
            return Number.over({run: self.by_run[run] - other.by_run[run] for run in self.by_run})
        stds = [one.std for one in (self, other) if len(one.by_run) > 1]
        return Number(self.value - other.value, math.hypot(*stds) if stds else math.nan)

    def times(self, scale: float) -> Number:
        by_run = {run: scale * value for run, value in self.by_run.items()}
        return Number(scale * self.value, scale * self.std, by_run)

    def text(self, digits: int = 2, *, spread: bool = True, sign: str = "") -> str:
        """`43.21 ± 0.12`, or the mean alone; a dash where there is none."""
        if not self:
            return NONE
        mean = f"{self.value:{sign}.{digits}f}".replace("-", "−")
        shows_spread = spread and math.isfinite(self.std)
        return f"{mean} ± {self.std:.{digits}f}" if shows_spread else mean
