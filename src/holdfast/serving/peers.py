"""What is asked of all servers of the same streams at once: each answers for itself, and what they
say is put together. A server that is alone asks itself."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import anyio.to_thread
from prometheus_client.core import Metric

from holdfast.fleet.fleet import Fleet
from holdfast.fleet.folder import StateError
from holdfast.serving.answering import IMAGES
from holdfast.serving.metrics import collect
from holdfast.serving.service import Service
from holdfast.serving.telling import tell_stream, tell_streams

Result = TypeVar("Result")


async def outcome(future: Future[Result]) -> Result:
    """Of the service. A client that goes away must not take the answer from another that waits for
    the same one."""
    return await asyncio.shield(asyncio.wrap_future(future))


class Desk:
    """What one server answers."""

    def __init__(self, service: Service):
        self.service = service

    async def streams(self) -> dict[str, Any]:
        return tell_streams(self.service)

    async def stream(self, name: str) -> dict[str, Any] | None:
        """None: there is no such stream, as far as is known here."""
        images = await outcome(self.service.ask(lambda fleet: images_in_state(fleet, name)))
        trouble = self.service.keeper.troubles.get(name)
        if images is None and trouble is None:
            return None
        told = tell_stream(self.service.watched.all().get(name))
        return {"stream": name, "trouble": trouble, **told, "images_in_state": images}

    async def metrics(self) -> list[Metric]:
        return collect(self.service)

    async def snapshot(self) -> int:
        return await outcome(self.service.snapshot())


class Peers(Protocol):
    """Who else serves the same streams."""

    async def ask(self, what: str, *arguments: str) -> dict[str, Any]:
        """What the desk of each answers, by the name of the server."""

    async def drain(self) -> list[str]:
        """All of them; the streams that could not be saved."""


class Alone:
    """One server, and nobody else."""

    def __init__(self, desk: Desk):
        self.desk = desk

    async def ask(self, what: str, *arguments: str) -> dict[str, Any]:
        return {"": await getattr(self.desk, what)(*arguments)}

    async def drain(self) -> list[str]:
        return await anyio.to_thread.run_sync(self.desk.service.drain)


def images_in_state(fleet: Fleet, name: str) -> int | None:
    if name not in fleet:
        return None
    try:
        return fleet.notes(name, look=True).get(IMAGES)
    except StateError:
        raise
    except (KeyError, IndexError, RuntimeError, TypeError, ValueError):
        return fleet.notes(name).get(IMAGES)  # damaged: it is set aside, which the error says
