"""Which streams are newer than their files, and when each has to be saved."""

from __future__ import annotations

import logging
import time

from holdfast.fleet.fleet import Fleet
from holdfast.fleet.folder import StateError, TakenOverError
from holdfast.serving.errors import ConflictError
from holdfast.serving.tally import Tally

log = logging.getLogger("holdfast.serving")

# Seconds until what could not be written is tried again, at least.
AGAIN = 1.0
# Saving begins at the first of these shares of the interval, a little at a time while images wait;
# what is past the second is saved whoever waits. What is left is for the step in between; where
# that takes long, both come so many steps before the end of the interval.
EARLY, URGENT = 0.5, 0.75
STEPS = 2
# Seconds of saving between two steps.
SHARE = 0.05


class Keeper:
    """Saves every stream within `interval` seconds of its first change; 0: whoever changes it saves
    it before anybody hears of it. `troubles`: why a stream cannot be served."""

    def __init__(self, fleet: Fleet, interval: float, tally: Tally):
        self.fleet = fleet
        self.interval = interval
        self.tally = tally
        self.troubles: dict[str, str] = {}
        # Streams that are newer than their file: since when, and until when nothing is tried.
        self._since: dict[str, float] = {}
        self._again: dict[str, float] = {}
        # How long a change may wait before a step comes in between.
        self._left = interval

    @property
    def writes_through(self) -> bool:
        return self.interval == 0

    def __contains__(self, stream: str) -> bool:
        """Whether it is newer than its file."""
        return stream in self._since

    def changed(self, stream: str) -> None:
        self._since.setdefault(stream, time.monotonic())

    def forget(self, stream: str) -> None:
        """It is saved, gone, or begins anew."""
        for known in (self._since, self._again, self.troubles):
            known.pop(stream, None)

    def age(self) -> float:
        """Seconds that the longest unsaved change has waited."""
        since = list(self._since.values())
        return max(0.0, time.monotonic() - min(since)) if since else 0.0

    def next(self) -> float | None:
        """When there is something to save."""
        return min(map(self._due, self._since), default=None)

    def _due(self, stream: str) -> float:
        early = self._since[stream] + min(EARLY * self.interval, self._left)
        return max(early, self._again.get(stream, early))

    def save_due(self, step: float = 0.0) -> None:
        """What has waited longest first; all that has to be, and of the rest a little. step: how
        long the last one took, after which there is the next chance."""
        began = time.monotonic()
        self._left = max(0.0, self.interval - STEPS * step)
        due = [stream for stream in self._since if self._due(stream) <= began]
        for stream in sorted(due, key=lambda stream: self._since[stream]):
            now = time.monotonic()
            presses = now - self._since[stream] >= min(URGENT * self.interval, self._left)
            if now - began > SHARE and not presses:
                return
            self.try_to_save(stream)

    def save_all(self) -> int:
        """All that have changed; how many of them could be."""
        return sum(self.try_to_save(stream) for stream in list(self._since))

    def unsaved(self) -> list[str]:
        return sorted(self._since)

    def try_to_save(self, stream: str) -> bool:
        try:
            self.save(stream)
        except TakenOverError as error:  # asked for again, it goes on from what the other saved
            log.warning("stream %s: %s", stream, error)
            return False
        except Exception as error:  # a full disk may have room again
            self._again[stream] = time.monotonic() + AGAIN
            self.tally.unsaved += 1
            log.error("stream %s could not be saved, and will be tried again: %s", stream, error)
            return False
        return True

    def save(self, stream: str) -> None:
        try:
            self.fleet.save(stream)
        except TakenOverError:
            self.forget(stream)  # trying again would not help
            raise
        self.forget(stream)
        self.tally.snapshots += 1

    def trouble(self, stream: str, error: StateError) -> ConflictError:
        """Told once in the log, and to everybody who asks for the stream."""
        text = str(error)
        if self.troubles.get(stream) != text:
            log.error("stream %s: %s", stream, text)
        self.troubles[stream] = text
        return ConflictError(text)
