"""From requests that share a step to their answers; only the thread that owns the fleet does it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.fleet.fleet import Fleet
from holdfast.fleet.folder import HeldError, StateError, TakenOverError
from holdfast.serving.errors import (
    BadRequestError,
    BusyError,
    ConflictError,
    DiskError,
    ServingError,
)
from holdfast.serving.keeping import Keeper
from holdfast.serving.remembered import recall, remember
from holdfast.serving.tally import Tally
from holdfast.serving.waiting import Ticket
from holdfast.serving.watching import Watched

# In a stream's notes: how many images its state has seen.
IMAGES = "images"

log = logging.getLogger("holdfast.serving")


@dataclass(frozen=True)
class Answered:
    """`repeated`: this request had been answered before; nothing was learnt again."""

    logits: Tensor
    repeated: bool = False


Tickets = list[Ticket[Answered]]


class Answering:
    """streams: how many there may be. remembered: images of each stream whose answers a retry still
    gets. put_back: has requests wait whose stream another server has just taken."""

    def __init__(
        self,
        fleet: Fleet,
        keeper: Keeper,
        tally: Tally,
        *,
        streams: int,
        remembered: int,
        put_back: Callable[[Tickets], None],
    ):
        self.fleet = fleet
        self.keeper = keeper
        self.tally = tally
        self.watched = Watched(fleet)
        self.streams = streams
        self.remembered = remembered
        self.put_back = put_back

    def answer(self, found: Mapping[str, Tickets]) -> None:
        """One batch of each stream through one step; every ticket is answered, or told why not."""
        try:
            fresh = {stream: self._fresh(stream, found[stream]) for stream in found}
            self._step({stream: tickets for stream, tickets in fresh.items() if tickets})
        except BaseException as error:
            for ticket in every(found):
                fail(ticket, ServingError(f"A fault in the server: {error!r}"))
            raise

    def _fresh(self, stream: str, tickets: Tickets) -> Tickets:
        """Those that were not answered before; a stream that cannot be served answers none."""
        try:
            if stream not in self.fleet:
                self._check_room()
                return tickets
            if self.keeper.writes_through and stream in self.keeper:
                self.keeper.save(stream)  # what was learnt when it could not be written
            notes = self.fleet.notes(stream)
            known = [recall(notes, ticket.request) for ticket in tickets]
        except HeldError:
            self.put_back(tickets)
            return []
        except Exception as error:
            problem = self._explained(stream, error)
            for ticket in tickets:
                fail(ticket, problem)
            return []
        left = []
        for ticket, logits in zip(tickets, known, strict=True):
            if logits is None:
                left.append(ticket)
            else:
                self.tally.repeated += 1
                ticket.future.set_result(Answered(logits, repeated=True))
        return left

    def _check_room(self) -> None:
        if len(self.fleet.streams()) >= self.streams:
            self.tally.turned_away["streams"] += 1
            raise BusyError(
                f"There are {self.streams} streams already, which is the limit. Remove one that "
                "has ended, or raise the limit.",
                after=60,
            )

    def _step(self, found: Mapping[str, Tickets]) -> None:
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
            if isinstance(error, HeldError):
                self.put_back(found[stream])
            elif len(found[stream]) == 1:
                self.tally.outcomes["refused"] += 1
                fail(found[stream][0], self._explained(stream, error))
            else:  # one request's images must not cost the others theirs
                for ticket in found[stream]:
                    self._step({stream: [ticket]})

    def _deliver(self, stream: str, tickets: Tickets, logits: Tensor, began: float) -> None:
        last = self.fleet.last(stream)
        self.tally.outcomes["applied" if last.stepped else "skipped"] += 1
        self.tally.collapses += last.collapsed
        self.tally.rollbacks += last.rolled_back
        if stream not in self.watched:
            log.info("stream %s: its first image here", stream)
        self.watched.saw(stream, logits, [] if last.refused else last.news("the method"))
        parts = torch.split(logits, [len(ticket.images) for ticket in tickets])
        # Without a claim: what was not learnt from the state of whoever took the stream meanwhile
        # must not be noted there.
        notes = self.fleet.notes(stream, look=True)
        notes[IMAGES] = notes.get(IMAGES, 0) + len(logits)
        for ticket, part in zip(tickets, parts, strict=True):
            if ticket.request is not None:
                remember(notes, ticket.request, part, self.remembered)
        self.keeper.troubles.pop(stream, None)
        self.keeper.changed(stream)
        problem = self._write_through(stream) if self.keeper.writes_through else None
        for ticket, part in zip(tickets, parts, strict=True):
            self.tally.waits.add(began - ticket.came)
            if problem is not None:
                fail(ticket, problem)
            else:
                self.tally.answered(len(part))
                ticket.future.set_result(Answered(part))

    def _write_through(self, stream: str) -> ServingError | None:
        """Save it; why that was not possible."""
        try:
            self.keeper.save(stream)
        except Exception as error:
            return self._explained(stream, error)
        return None

    def _explained(self, stream: str, error: Exception) -> ServingError:
        """An error as the one who asked should see it."""
        if isinstance(error, ServingError):
            return error
        if isinstance(error, TakenOverError):
            return ConflictError(str(error))
        if isinstance(error, StateError):
            return self.keeper.trouble(stream, error)
        if isinstance(error, ValueError | TypeError):
            return BadRequestError(str(error))
        if isinstance(error, OSError):
            log.error("stream %s: %s", stream, error)
            return DiskError(
                f"The state of {stream} could not be read or written ({error}): make room, or see "
                "to the server's disk, and send it again with the same request id."
            )
        log.error("stream %s: a fault in the server", stream, exc_info=error)
        return ServingError(f"A fault in the server: {error!r}")


def every(found: Mapping[str, Tickets]) -> Iterator[Ticket[Answered]]:
    for tickets in found.values():
        yield from tickets


def fail(ticket: Ticket[Answered], error: ServingError) -> None:
    if not ticket.future.done():
        ticket.future.set_exception(error)
