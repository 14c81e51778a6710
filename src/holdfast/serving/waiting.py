"""Requests that wait for their turn: by stream, in order, until they make a batch."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from torch import Tensor

from holdfast.serving.errors import BusyError

Answer = TypeVar("Answer")


@dataclass(eq=False)
class Ticket(Generic[Answer]):
    """Images of one request. `came` and `due` are times on one clock, in seconds: due is when it
    waits no longer for others to share its batch."""

    stream: str
    images: Tensor
    came: float
    due: float
    request: str | None = None
    future: Future[Answer] = field(default_factory=Future)

    def fits(self, other: Ticket[Answer]) -> bool:
        mine, theirs = self.images, other.images
        return mine.shape[1:] == theirs.shape[1:] and mine.dtype == theirs.dtype


class Waiting(Generic[Answer]):
    """A line for each stream. A line is ready once it holds a batch, or its first is due.

    A request is never split, so that it is answered, learnt and repeated as a whole: one with more
    images than `batch` is a batch of its own.
    """

    def __init__(self, batch: int, limit: int):
        self.batch = batch
        self.limit = limit
        self.images = 0
        self.lines: dict[str, deque[Ticket[Answer]]] = {}
        # Lines that are not ready before a certain time.
        self.held: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self.lines)

    def put(self, ticket: Ticket[Answer]) -> None:
        count = len(ticket.images)
        if self.images and self.images + count > self.limit:
            raise BusyError(
                f"{self.images} images wait already, and no more than {self.limit} may. Send it "
                "again a little later: with the same request id, nothing is learnt twice."
            )
        self.lines.setdefault(ticket.stream, deque()).append(ticket)
        self.images += count

    def find(self, stream: str, request: str) -> Ticket[Answer] | None:
        """The ticket that waits under this id, if one does."""
        line = self.lines.get(stream, ())
        return next((ticket for ticket in line if ticket.request == request), None)

    def put_back(self, tickets: list[Ticket[Answer]], until: float) -> None:
        """What was taken of one stream comes first again, and waits at least until then."""
        stream = tickets[0].stream
        self.lines.setdefault(stream, deque()).extendleft(reversed(tickets))
        self.images += sum(len(ticket.images) for ticket in tickets)
        self.held[stream] = until

    def due(self, everything: bool = False) -> float | None:
        """When the next line is ready, if nothing more comes; None: nothing waits."""
        return min((self._ready(stream, everything) for stream in self.lines), default=None)

    def _ready(self, stream: str, everything: bool) -> float:
        line = self.lines[stream]
        at = float("-inf") if everything or self._full(line) else line[0].due
        return max(at, self.held.get(stream, at))

    def take(
        self,
        now: float,
        everything: bool = False,
        most: int | None = None,
        streams: int | None = None,
    ) -> dict[str, list[Ticket[Answer]]]:
        """One batch of each line that is ready, or of every line if everything has to go; no more
        lines than make up `most` images, and no more than `streams`; those that have waited
        longest first."""
        ready = [stream for stream in self.lines if self._ready(stream, everything) <= now]
        ready.sort(key=lambda stream: self.lines[stream][0].due)
        found: dict[str, list[Ticket[Answer]]] = {}
        images = self.images
        for stream in ready[:streams]:
            if most is not None and found and images - self.images >= most:
                break
            found[stream] = self._batch(stream)
        return found

    def withdraw(self, stream: str) -> list[Ticket[Answer]]:
        """All that waits for a stream, which waits no more."""
        line = self.lines.pop(stream, deque())
        self.held.pop(stream, None)
        self.images -= sum(len(ticket.images) for ticket in line)
        return list(line)

    def _full(self, line: deque[Ticket[Answer]]) -> bool:
        total = 0
        for ticket in line:
            total += len(ticket.images)
            if total >= self.batch or not ticket.fits(line[0]):
                return True
        return False

    def _batch(self, stream: str) -> list[Ticket[Answer]]:
        line = self.lines[stream]
        self.held.pop(stream, None)
        taken = [line.popleft()]
        total = len(taken[0].images)
        while line and line[0].fits(taken[0]) and total + len(line[0].images) <= self.batch:
            taken.append(line.popleft())
            total += len(taken[-1].images)
        self.images -= total
        if not line:
            del self.lines[stream]
        return taken
