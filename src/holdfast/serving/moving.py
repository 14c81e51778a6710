"""Streams that go from one server to another which shares its folder: nothing that was learnt is
lost, while both are there."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from holdfast.fleet.fleet import Fleet
from holdfast.fleet.sharing import Sharing

log = logging.getLogger("holdfast.serving")

# Seconds between two looks at what others ask for, and at what they were asked for.
LOOK = 0.05
# Seconds that another server has to hand a stream over; it may be in the middle of a long step.
PATIENCE = 30.0


class Moving:
    """Only the thread that owns the fleet uses it, until the end."""

    def __init__(self, fleet: Fleet, patience: float = PATIENCE):
        self._sharing = fleet.sharing
        self._patience = patience
        # Streams that others were asked for: since when.
        self._since: dict[str, float] = {}
        self._looked = 0.0
        if self._sharing is not None:
            self._sharing.open()

    def is_here(self, stream: str) -> bool:
        """Whether a stream can be gone on with; if not, it is on its way."""
        if self._sharing is None or self._fetch(self._sharing, stream):
            self._since.pop(stream, None)
            return True
        if time.monotonic() - self._since.setdefault(stream, time.monotonic()) < self._patience:
            return False
        log.warning(
            "stream %s: another server has it, and did not hand it over within %g seconds; it goes "
            "on from what was saved last",
            *(stream, self._patience),
        )
        del self._since[stream]
        self._sharing.insist(stream)
        return True

    def _fetch(self, sharing: Sharing, stream: str) -> bool:
        try:
            return sharing.fetch(stream)
        except OSError:  # which whoever goes on with it comes across too, and tells
            return True

    def next(self) -> float | None:
        """When to look again at what others ask for."""
        return None if self._sharing is None else self._looked + LOOK

    def answer(self, give: Callable[[str, str], None]) -> None:
        """Give others what they ask for."""
        now = time.monotonic()
        if self._sharing is None or now < self._looked + LOOK:
            return
        self._looked = now
        for stream, asker in self._sharing.asked():
            try:
                give(stream, asker)
            except Exception as error:  # a full disk may have room again
                log.error("stream %s could not be handed over: %s", stream, error)

    def end(self) -> None:
        if self._sharing is not None:
            self._sharing.close()
