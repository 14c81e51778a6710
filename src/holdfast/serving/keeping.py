"""Which streams are newer than their files, and when each has to be saved."""

from __future__ import annotations

import logging
import time

from holdfast.fleet.fleet import Fleet
from holdfast.fleet.folder import StateError
from holdfast.serving.errors import ConflictError
from holdfast.serving.tally import Tally

log = logging.getLogger("holdfast.serving")

# Seconds until what could not be written is tried again, at least.
AGAIN = 1.0


class Keeper:
    """Saves every stream within `interval` seconds of its first change; 0: whoever changes it saves
    it before anybody hears of it. `troubles`: why a stream cannot be served or saved."""

    def __init__(self, fleet: Fleet, interval: float, tally: Tally):
        self.fleet = fleet
        self.interval = interval
        self.tally = tally
        self.troubles: dict[str, str] = {}
        self._due: dict[str, float] = {}

    @property
    def writes_through(self) -> bool:
        return self.interval == 0

    def __contains__(self, stream: str) -> bool:
        """Whether it is newer than its file."""
        return stream in self._due

    def changed(self, stream: str) -> None:
        self._due.setdefault(stream, time.monotonic() + self.interval)

    def forget(self, stream: str) -> None:
        """It is gone, or begins anew."""
        self._due.pop(stream, None)
        self.troubles.pop(stream, None)

    def next(self) -> float | None:
        """When there is something to save, if time allows it."""
        # At half of the interval: what has to be saved at once is then rarely more than one.
        return min(self._due.values()) - self.interval / 2 if self._due else None

    def age(self) -> float:
        """Seconds that the longest unsaved change has waited."""
        due = list(self._due.values())
        return max(0.0, time.monotonic() - (min(due) - self.interval)) if due else 0.0

    def save(self, stream: str) -> None:
        self.fleet.save(stream)
        self.forget(stream)
        self.tally.snapshots += 1

    def save_due(self, now: float, *, idle: bool) -> None:
        """All that has to be saved now; if there is nothing else to do, also one that will be."""
        overdue = [stream for stream, due in self._due.items() if due <= now]
        early = self.next()
        if not overdue and idle and early is not None and early <= now:
            overdue = [min(self._due, key=lambda stream: self._due[stream])]
        for stream in overdue:
            self.try_to_save(stream)

    def save_all(self) -> int:
        """All that have changed; how many of them could be."""
        return sum(self.try_to_save(stream) for stream in list(self._due))

    def unsaved(self) -> list[str]:
        return sorted(self._due)

    def try_to_save(self, stream: str) -> bool:
        try:
            self.save(stream)
        except StateError as error:  # it is another's now: trying again would not help
            self._due.pop(stream, None)
            self.trouble(stream, error)
            return False
        except Exception as error:  # a full disk may have room again
            self._due[stream] = time.monotonic() + max(AGAIN, self.interval)
            self.tally.unsaved += 1
            log.error("stream %s could not be saved, and will be tried again: %s", stream, error)
            return False
        return True

    def trouble(self, stream: str, error: StateError) -> ConflictError:
        """Told once in the log, and to everybody who asks for the stream."""
        text = str(error)
        if self.troubles.get(stream) != text:
            log.error("stream %s: %s", stream, text)
        self.troubles[stream] = text
        return ConflictError(text)
