"""The core of serving: many callers, many streams, one network."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from torch import Tensor

from holdfast.fleet.fleet import Fleet
from holdfast.fleet.folder import StateError
from holdfast.serving.answering import Answered, Answering, Tickets, every, fail
from holdfast.serving.errors import (
    BusyError,
    ConflictError,
    ServingError,
    StoppingError,
    UnknownStreamError,
)
from holdfast.serving.keeping import Keeper
from holdfast.serving.moving import LOOK, Moving
from holdfast.serving.tally import Tally
from holdfast.serving.waiting import Ticket, Waiting

log = logging.getLogger("holdfast.serving")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ServiceOptions:
    """How a service runs.

    batch: images of a stream that are taken at a time, at most.
    together: images of all streams that share a step, about.
    deadline: seconds that a request waits for others to share its batch.
    snapshot: seconds after which a stream that has changed is saved, at most; 0: before every
        answer, so that not even a kill loses anything.
    waiting: images that may wait altogether; more are turned away.
    streams: how many there may be.
    remembered: images of each stream whose answers a retry still gets.
    """

    batch: int = 64
    together: int = 256
    deadline: float = 0.01
    snapshot: float = 30.0
    waiting: int = 1024
    streams: int = 10_000
    remembered: int = 256

    def __post_init__(self) -> None:
        for name in ("batch", "together", "waiting", "streams", "remembered"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is a number of at least 1, not {value!r}.")
        for name in ("deadline", "snapshot"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ValueError(f"{name} is a number of seconds, at least 0, not {value!r}.")


@dataclass(frozen=True)
class Order:
    """work: to be done between two steps, when a stream is here. due: not before."""

    work: Callable[[], None]
    stream: str | None = None
    due: float = float("-inf")


class Service:
    """`service.submit("camera-7", images).result().logits`, from any thread.

    One thread of its own works on the fleet, which nobody else may touch meanwhile: a stream's
    images come in the order they were submitted, and streams that wait at once share a step.
    """

    def __init__(self, fleet: Fleet, options: ServiceOptions = ServiceOptions()):  # noqa: B008
        self.fleet = fleet
        self.options = options
        self.tally = Tally()
        self.keeper = Keeper(fleet, options.snapshot, self.tally)
        self._answering = Answering(
            *(fleet, self.keeper, self.tally),
            streams=options.streams,
            remembered=options.remembered,
            put_back=self._put_back,
        )
        self.watched = self._answering.watched
        self.stopping = False
        self.failed = False
        self._moving = Moving(fleet)
        self._waiting: Waiting[Answered] = Waiting(options.batch, options.waiting)
        self._orders: list[Order] = []
        self._at_work: dict[tuple[str, str], Ticket[Answered]] = {}
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="holdfast-service", daemon=True)
        self._thread.start()

    # Called from any thread.

    def submit(self, stream: str, images: Tensor, request: str | None = None) -> Future[Answered]:
        """An answer to come. A request with an id that was answered before, or waits already, gets
        that answer."""
        now = time.monotonic()
        with self._changed:
            self._check_open()
            if request is not None:
                same = self._at_work.get((stream, request)) or self._waiting.find(stream, request)
                if same is not None and not same.future.done():
                    self.tally.repeated += 1
                    return same.future
            ticket: Ticket[Answered] = Ticket(
                stream, images, now, now + self.options.deadline, request
            )
            try:
                self._waiting.put(ticket)
            except BusyError:
                self.tally.turned_away["waiting"] += 1
                raise
            self._changed.notify()
        return ticket.future

    def reset(self, stream: str) -> Future[None]:
        """Begin a stream anew, after what waits for it already; also one whose state is damaged."""
        return self._order(lambda: self._reset(stream), stream)

    def remove(self, stream: str) -> Future[None]:
        """Forget a stream and its files."""
        return self._order(lambda: self._remove(stream), stream)

    def snapshot(self, stream: str | None = None) -> Future[int]:
        """Save a stream, or all that have changed; how many were."""
        return self._order(lambda: self._snapshot(stream), stream)

    def ask(self, look: Callable[[Fleet], Result]) -> Future[Result]:
        """What `look` sees of the fleet, between two steps."""
        return self._order(lambda: look(self.fleet))

    def stop(self) -> None:
        """Take nothing more; what waits is answered at once, and everything saved."""
        with self._changed:
            self.stopping = True
            self._changed.notify()

    def drain(self) -> list[str]:
        """Stop, and wait until it is done; the streams that could not be saved."""
        self.stop()
        self._thread.join()
        return self.keeper.unsaved()

    @property
    def ready(self) -> bool:
        return not (self.stopping or self.failed)

    @property
    def waiting(self) -> int:
        """Images that wait."""
        return self._waiting.images

    def _check_open(self) -> None:
        if self.failed:
            raise StoppingError("The server has failed, and has to be started again.")
        if self.stopping:
            raise StoppingError("The server is stopping and takes nothing more. Ask another one.")

    def _order(self, work: Callable[[], Result], stream: str | None = None) -> Future[Result]:
        """stream: one that has to be here for it."""
        future: Future[Result] = Future()

        def carry_out() -> None:
            if future.set_running_or_notify_cancel():
                settle(future, work)

        with self._changed:
            self._check_open()
            self._orders.append(Order(carry_out, stream))
            self._changed.notify()
        return future

    # In the thread that works on the fleet.

    def _run(self) -> None:
        try:
            self._work()
        except BaseException:  # such as running out of memory, in which nothing can be promised
            log.critical("The server has failed: start it again.", exc_info=True)
            with self._changed:
                self.failed = True
                left = [t for stream in list(self._waiting.lines) for t in self._wanted_of(stream)]
            for ticket in left:
                fail(ticket, ServingError("The server has failed before it came to this request."))
        finally:
            self._moving.end()

    def _work(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                while not self._awake(now):
                    self._changed.wait(self._pause(now))
                    now = time.monotonic()
                stopping = self.stopping
                orders = [order for order in self._orders if order.due <= now]
                self._orders = [order for order in self._orders if order.due > now]
                # A stream that left memory within a step would be saved without its answers.
                tickets = self._wanted(
                    self._waiting.take(now, stopping, self.options.together, self.fleet.resident)
                )
            try:
                self._answer(self._here(tickets))
                for order in orders:
                    self._carry_out(order)
                self._moving.answer(self._give)
                self.keeper.save_due(time.monotonic() - now)
            except Exception:  # a fault of ours must not end the service
                log.exception("A fault in the server; it goes on.")
            if stopping and not self._waiting and not self._orders:
                self.keeper.save_all()
                return

    def _awake(self, now: float) -> bool:
        idle = not self._waiting and not self._orders
        return (self.stopping and idle) or self._pause(now) == 0

    def _pause(self, now: float) -> float | None:
        """Seconds until something has to be done; None: until somebody comes."""
        waiting = self._waiting.due(self.stopping), self.keeper.next(), self._moving.next()
        times = [at for at in waiting if at is not None]
        times += [order.due for order in self._orders]
        return max(0.0, min(times) - now) if times else None

    def _here(self, found: dict[str, Tickets]) -> dict[str, Tickets]:
        """Those whose stream is here; others wait for theirs, in the order they came."""
        here = {}
        for stream, tickets in found.items():
            if self._moving.is_here(stream):
                here[stream] = tickets
            else:
                self._put_back(tickets)
        return here

    def _put_back(self, tickets: Tickets) -> None:
        with self._changed:
            self._waiting.put_back(tickets, time.monotonic() + LOOK)

    def _carry_out(self, order: Order) -> None:
        if order.stream is None or self._moving.is_here(order.stream):
            order.work()
        else:
            with self._changed:
                self._orders.append(replace(order, due=time.monotonic() + LOOK))

    def _wanted(self, found: dict[str, Tickets]) -> dict[str, Tickets]:
        """Those that nobody has cancelled, kept in mind for retries that come meanwhile."""
        wanted: dict[str, Tickets] = {}
        for ticket in every(found):
            if ticket.future.running() or ticket.future.set_running_or_notify_cancel():
                wanted.setdefault(ticket.stream, []).append(ticket)
                if ticket.request is not None:
                    self._at_work[ticket.stream, ticket.request] = ticket
        return wanted

    def _wanted_of(self, stream: str) -> Tickets:
        """All that waits for a stream."""
        return list(every(self._wanted({stream: self._waiting.withdraw(stream)})))

    def _answer(self, found: dict[str, Tickets]) -> None:
        try:
            self._answering.answer(found)
        finally:
            with self._changed:
                for ticket in every(found):
                    self._at_work.pop((ticket.stream, ticket.request or ""), None)

    def _flush(self, stream: str) -> None:
        """Answer all that waits for a stream, which has to be there."""
        with self._changed:
            found = self._wanted_of(stream)
        for ticket in found:
            self._answer({stream: [ticket]})
        if stream not in self.fleet and stream not in self.keeper.troubles:
            raise UnknownStreamError(
                f"There is no stream {stream!r}: GET /v2/streams lists those there are."
            )

    def _give(self, stream: str, to: str) -> None:
        """Hand a stream over, after what waits for it here."""
        if self._moving.is_here(stream):
            with self._changed:
                found = self._wanted_of(stream)
            for ticket in found:
                self._answer({stream: [ticket]})
        if stream not in self.keeper or self.keeper.try_to_save(stream):
            self.fleet.give(stream, to)
            self.watched.forget(stream)
            log.info("stream %s was handed over to another server", stream)

    def _snapshot(self, stream: str | None) -> int:
        if stream is None:
            return self.keeper.save_all()
        self._flush(stream)
        self.keeper.save(stream)
        return 1

    def _reset(self, stream: str) -> None:
        self._flush(stream)
        if stream in self.fleet:
            self.fleet.reset(stream)
            self.fleet.notes(stream).clear()
        else:
            self.fleet.add(stream)  # its state was damaged, and is set aside
        self.watched.forget(stream)
        self.keeper.save(stream)
        log.info("stream %s was reset", stream)

    def _remove(self, stream: str) -> None:
        self._flush(stream)
        self.fleet.remove(stream)
        self.watched.forget(stream)
        self.keeper.forget(stream)
        log.info("stream %s was removed", stream)


def settle(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except StateError as error:
        future.set_exception(ConflictError(str(error)))
    except Exception as error:
        future.set_exception(error)
