"""What a service counts while it runs."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, deque
from dataclasses import dataclass, field

# Upper bounds of the classes that times are counted in, in seconds.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
RECENT = 10.0


@dataclass
class Times:
    """A histogram of durations."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


@dataclass
class Tally:
    """Since the service began. The thread that works on the streams writes; others may read.

    outcomes: batches that were learnt from ("applied"), that nothing was learnt from ("skipped"),
    that were turned away ("refused"). turned_away: requests for which there was no room.
    unsaved: saves that failed. repeated: requests that had been answered before.
    """

    images: int = 0
    repeated: int = 0
    snapshots: int = 0
    unsaved: int = 0
    collapses: int = 0
    rollbacks: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    turned_away: Counter[str] = field(default_factory=Counter)
    steps: Times = field(default_factory=Times)
    waits: Times = field(default_factory=Times)
    recent: deque[tuple[float, int]] = field(default_factory=deque)

    def answered(self, images: int, now: float | None = None) -> None:
        now = time.monotonic() if now is None else now
        self.images += images
        self.recent.append((now, images))
        while self.recent[0][0] < now - RECENT:
            self.recent.popleft()

    def rate(self, now: float | None = None) -> float:
        """Images a second over the last ten seconds."""
        now = time.monotonic() if now is None else now
        return sum(images for at, images in tuple(self.recent) if at >= now - RECENT) / RECENT
