"""What is known of each stream that was served, for pages and metrics: read at any time, from any
thread, without a look at the fleet."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from holdfast.engine.health import Health
from holdfast.fleet.fleet import Fleet

log = logging.getLogger("holdfast.serving")

# Seconds between two looks at the health of a stream, which takes a little of its time.
EVERY = 1.0
# Shares of predicted classes are over about so many images.
REACH = 500


@dataclass
class Seen:
    """One stream. `at`: when its last image came, on the clock of `time.monotonic`; `largest`: the
    share of the class that is predicted most of late."""

    images: int = 0
    at: float = 0.0
    looked: float = float("-inf")
    health: Health = field(default_factory=Health)
    shares: np.ndarray[tuple[int], np.dtype[np.float32]] | None = None

    @property
    def largest(self) -> float | None:
        return None if self.shares is None else float(self.shares.max() / self.shares.sum())

    def take(self, logits: Tensor) -> None:
        """Count which classes were predicted."""
        fresh = np.bincount(logits.argmax(1).cpu().numpy(), minlength=logits.shape[1])
        if self.shares is None:
            self.shares = np.zeros(logits.shape[1], np.float32)
        self.shares *= (1 - 1 / REACH) ** len(logits)
        self.shares += fresh


class Watched:
    """All streams that were served since the service began."""

    def __init__(self, fleet: Fleet):
        self.fleet = fleet
        self._seen: dict[str, Seen] = {}

    def __contains__(self, stream: str) -> bool:
        return stream in self._seen

    def saw(self, stream: str, logits: Tensor, news: list[str]) -> None:
        """A batch was answered so."""
        now = time.monotonic()
        seen = self._seen.setdefault(stream, Seen())
        seen.images += len(logits)
        seen.at = now
        seen.take(logits)
        if news or now - seen.looked >= EVERY:
            seen.health, seen.looked = self.fleet.health(stream), now
        for text in news:
            log.warning("stream %s: %s", stream, text)

    def forget(self, stream: str) -> None:
        self._seen.pop(stream, None)

    def all(self) -> dict[str, Seen]:
        return dict(self._seen)

    def alarms(self) -> list[str]:
        return [stream for stream, seen in self.all().items() if seen.health.alarm]
