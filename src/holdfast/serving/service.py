"""The core of serving: many callers, many streams, one network."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from holdfast.fleet.fleet import Fleet
from holdfast.fleet.folder import StateError
from holdfast.serving.errors import (
    BadRequestError,
    BusyError,
    ConflictError,
    ServingError,
    StoppingError,
    UnknownStreamError,
)
from holdfast.serving.remembered import recall, remember
from holdfast.serving.tally import Tally
from holdfast.serving.waiting import Ticket, Waiting

log = logging.getLogger("holdfast.serving")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Answered:
    """`repeated`: this request had been answered before; nothing was learnt again."""

    logits: Tensor
    repeated: bool = False


@dataclass(frozen=True)
class ServiceOptions:
    """How a service runs.

    batch: images of a stream that are taken at a time, at most.
    deadline: seconds that a request waits for others to share its batch.
    snapshot: seconds after which a stream that has changed is saved, at most; 0: before every
        answer, so that not even a kill loses anything.
    waiting: images that may wait altogether; more are turned away.
    streams: how many there may be.
    remembered: images of each stream whose answers a retry still gets.
    """

    batch: int = 64
    deadline: float = 0.05
    snapshot: float = 30.0
    waiting: int = 4096
    streams: int = 10_000
    remembered: int = 256

    def __post_init__(self) -> None:
        for name in ("batch", "waiting", "streams", "remembered"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is a number of at least 1, not {value!r}.")
        for name in ("deadline", "snapshot"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ValueError(f"{name} is a number of seconds, at least 0, not {value!r}.")


class Service:
    """`service.submit("camera-7", images).result().logits`, from any thread.

    One thread of its own works on the fleet, which nobody else may touch meanwhile: a stream's
    images come in the order they were submitted, and streams that wait at once share a step.
    """

    def __init__(self, fleet: Fleet, options: ServiceOptions = ServiceOptions()):  # noqa: B008
        self.fleet = fleet
        self.options = options
        self.tally = Tally()
        self.troubles: dict[str, str] = {}
        self.stopping = False
        self._waiting: Waiting[Answered] = Waiting(options.batch, options.waiting)
        self._orders: list[Callable[[], None]] = []
        # Streams whose state is newer than their file, and when they have to be saved.
        self._unsaved: dict[str, float] = {}
        self._at_work: dict[tuple[str, str], Ticket[Answered]] = {}
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="holdfast-service", daemon=True)
        self._thread.start()

    # Called from any thread.

    def submit(self, stream: str, images: Tensor, request: str | None = None) -> Future[Answered]:
        """An answer to come. A request with an id that was answered before, or waits already, gets
        that answer."""
        now = time.monotonic()
        due = now + self.options.deadline
        with self._changed:
            self._check_open()
            if request is not None:
                same = self._at_work.get((stream, request)) or self._waiting.find(stream, request)
                if same is not None:
                    return same.future
            ticket: Ticket[Answered] = Ticket(stream, images, now, due, request)
            try:
                self._waiting.put(ticket)
            except BusyError:
                self.tally.turned_away["waiting"] += 1
                raise
            self._changed.notify()
        return ticket.future

    def reset(self, stream: str) -> Future[None]:
        """Begin a stream anew, after what waits for it already; also one whose state is damaged."""
        return self._order(lambda: self._reset(stream))

    def remove(self, stream: str) -> Future[None]:
        """Forget a stream and its files."""
        return self._order(lambda: self._remove(stream))

    def snapshot(self, stream: str | None = None) -> Future[int]:
        """Save a stream, or all that have changed; how many were."""
        return self._order(lambda: self._snapshot(stream))

    def ask(self, look: Callable[[Fleet], Result]) -> Future[Result]:
        """What `look` sees of the fleet, between two steps."""
        return self._order(lambda: look(self.fleet))

    def drain(self) -> None:
        """Take nothing more, answer what waits, save everything, end."""
        with self._changed:
            self.stopping = True
            self._changed.notify()
        self._thread.join()

    def _check_open(self) -> None:
        if self.stopping:
            raise StoppingError("The server is stopping and takes nothing more. Ask another one.")

    def _order(self, work: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()

        def carry_out() -> None:
            if future.set_running_or_notify_cancel():
                settle(future, work)

        with self._changed:
            self._check_open()
            self._orders.append(carry_out)
            self._changed.notify()
        return future

    # In the thread that works on the fleet.

    def _work(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                while not self._awake(now):
                    self._changed.wait(self._pause(now))
                    now = time.monotonic()
                stopping = self.stopping
                orders, self._orders = self._orders, []
                tickets = self._take(self._waiting.take(now, everything=stopping))
            try:
                self._answer(tickets)
                for order in orders:
                    order()
                self._save_overdue(now)
            except Exception:  # a fault of ours must not end the service
                log.exception("A fault in the server; it goes on.")
            if stopping and not self._waiting:
                self._snapshot(None)
                return

    def _awake(self, now: float) -> bool:
        return bool(self.stopping or self._orders) or self._pause(now) == 0

    def _pause(self, now: float) -> float | None:
        """Seconds until something has to be done; None: until somebody comes."""
        times = [*self._unsaved.values()]
        due = self._waiting.due()
        if due is not None:
            times.append(due)
        return max(0.0, min(times) - now) if times else None

    def _take(self, found: dict[str, list[Ticket[Answered]]]) -> dict[str, list[Ticket[Answered]]]:
        """Those that are still wanted, kept in mind for retries that come meanwhile."""
        wanted: dict[str, list[Ticket[Answered]]] = {}
        for stream, tickets in found.items():
            for ticket in tickets:
                if ticket.future.set_running_or_notify_cancel():
                    wanted.setdefault(stream, []).append(ticket)
                    if ticket.request is not None:
                        self._at_work[stream, ticket.request] = ticket
        return wanted

    def _answer(self, found: dict[str, list[Ticket[Answered]]]) -> None:
        """One batch of each stream, through one step."""
        try:
            fresh = {stream: self._fresh(stream, tickets) for stream, tickets in found.items()}
            self._step({stream: tickets for stream, tickets in fresh.items() if tickets})
        except BaseException as error:
            for ticket in (ticket for tickets in found.values() for ticket in tickets):
                fail(ticket, ServingError(f"A fault in the server: {error!r}"))
            raise
        finally:
            with self._changed:
                for ticket in (ticket for tickets in found.values() for ticket in tickets):
                    self._at_work.pop((ticket.stream, ticket.request or ""), None)

    def _fresh(self, stream: str, tickets: list[Ticket[Answered]]) -> list[Ticket[Answered]]:
        """Those that were not answered before; a stream that cannot be served answers none."""
        try:
            if stream not in self.fleet and len(self.fleet.streams()) >= self.options.streams:
                self.tally.turned_away["streams"] += len(tickets)
                raise BusyError(
                    f"There are {self.options.streams} streams already, which is the limit. Remove "
                    "one that has ended, or raise the limit.",
                    after=60,
                )
            if stream not in self.fleet:
                self.fleet.add(stream)
                log.info("stream %s begins", stream)
            notes = self.fleet.notes(stream)
        except Exception as error:
            problem = self._explained(stream, error)
            for ticket in tickets:
                fail(ticket, problem)
            return []
        left = []
        for ticket in tickets:
            known = recall(notes, ticket.request)
            if known is None:
                left.append(ticket)
            else:
                self.tally.repeated += 1
                ticket.future.set_result(Answered(known, repeated=True))
        return left

    def _step(self, found: dict[str, list[Ticket[Answered]]]) -> None:
        if not found:
            return
        refused: dict[str, Exception] = {}
        batches = {
            stream: torch.cat([ticket.images for ticket in tickets])
            for stream, tickets in found.items()
        }
        began = time.monotonic()
        answers = self.fleet.step(batches, refused=refused)
        self.tally.steps.add(time.monotonic() - began)
        for stream, logits in answers.items():
            self._deliver(stream, found[stream], logits, began)
        for stream, error in refused.items():
            if len(found[stream]) == 1:
                self.tally.outcomes["refused"] += 1
                fail(found[stream][0], self._explained(stream, error))
            else:  # one request's images must not cost the others theirs
                for ticket in found[stream]:
                    self._step({stream: [ticket]})

    def _deliver(
        self, stream: str, tickets: list[Ticket[Answered]], logits: Tensor, began: float
    ) -> None:
        last, notes = self.fleet.last(stream), self.fleet.notes(stream)
        self.tally.outcomes["applied" if last.stepped else "skipped"] += 1
        self.tally.collapses += last.collapsed
        self.tally.rollbacks += last.rolled_back
        parts = logits.split([len(ticket.images) for ticket in tickets])
        for ticket, part in zip(tickets, parts, strict=True):
            if ticket.request is not None:
                remember(notes, ticket.request, part, self.options.remembered)
        problem: ServingError | None = None
        if self.options.snapshot == 0:
            try:
                self._save(stream)
            except Exception as error:
                problem = self._explained(stream, error)
        else:
            self._unsaved.setdefault(stream, time.monotonic() + self.options.snapshot)
        for ticket, part in zip(tickets, parts, strict=True):
            self.tally.waits.add(began - ticket.came)
            if problem is None:
                self.tally.answered(len(part))
                ticket.future.set_result(Answered(part))
            else:
                fail(ticket, problem)

    def _explained(self, stream: str, error: Exception) -> ServingError:
        """An error as the one who asked should see it."""
        if isinstance(error, ServingError):
            return error
        if isinstance(error, StateError):
            if self.troubles.get(stream) != str(error):
                log.error("stream %s: %s", stream, error)
            self.troubles[stream] = str(error)
            return ConflictError(str(error))
        if isinstance(error, ValueError | TypeError):
            return BadRequestError(str(error))
        log.error("stream %s: a fault in the server", stream, exc_info=error)
        return ServingError(f"A fault in the server: {error!r}")

    def _save(self, stream: str) -> None:
        self.fleet.save(stream)
        self._unsaved.pop(stream, None)
        self.tally.snapshots += 1

    def _save_overdue(self, now: float) -> None:
        for stream in [stream for stream, due in self._unsaved.items() if due <= now]:
            self._try_to_save(stream)

    def _try_to_save(self, stream: str) -> bool:
        try:
            self._save(stream)
        except StateError as error:  # it is another's now, or cannot be written as it is
            self._unsaved.pop(stream, None)
            self._explained(stream, error)
            return False
        except OSError as error:  # a full disk may have room again
            self._unsaved[stream] = time.monotonic() + max(1.0, self.options.snapshot)
            log.error("stream %s could not be saved, and will be tried again: %s", stream, error)
            return False
        return True

    def _snapshot(self, stream: str | None) -> int:
        if stream is not None:
            self._flush(stream)
            self._check_known(stream)
            self._save(stream)
            return 1
        return sum(self._try_to_save(name) for name in list(self._unsaved))

    def _reset(self, stream: str) -> None:
        self._flush(stream)
        self._check_known(stream)
        self.fleet.reset(stream)
        self.fleet.notes(stream).clear()
        self.troubles.pop(stream, None)
        self._save(stream)
        log.info("stream %s was reset", stream)

    def _remove(self, stream: str) -> None:
        self._flush(stream)
        self._check_known(stream)
        self.fleet.remove(stream)
        self.troubles.pop(stream, None)
        self._unsaved.pop(stream, None)
        log.info("stream %s was removed", stream)

    def _check_known(self, stream: str) -> None:
        if stream not in self.fleet:
            raise UnknownStreamError(f"There is no stream {stream!r}.")

    def _flush(self, stream: str) -> None:
        """Answer all that waits for a stream."""
        while True:
            with self._changed:
                tickets = self._waiting.withdraw(stream)
                found: dict[str, list[Ticket[Answered]]] = self._take(
                    {stream: tickets} if tickets else {}
                )
            if not found:
                return
            for ticket in found[stream]:
                self._answer({stream: [ticket]})


def settle(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)


def fail(ticket: Ticket[Answered], error: ServingError) -> None:
    if not ticket.future.done():
        ticket.future.set_exception(error)
