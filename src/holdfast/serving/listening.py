"""A server of HTTP that loses nothing when it is told to end."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from holdfast.serving.front import Front
from holdfast.serving.telling import tell_briefly

log = logging.getLogger("holdfast.serving")

# Seconds that requests in flight have to end, once it is told to; a body may take this long.
PATIENCE = 35
PORTS = 65535
# Of a tenth of a second, between two lines that say how it goes.
TICKS = 600


class Listener(uvicorn.Server):
    """On SIGTERM or Ctrl-C it takes nothing more, answers what it has, saves every stream and
    ends."""

    def __init__(self, front: Front, host: str, port: int):
        super().__init__(
            uvicorn.Config(
                front.app,
                host=host,
                port=port,
                log_config=None,
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=PATIENCE,
            )
        )
        self.front = front
        self._told = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        host, port, served = self.config.host, self.config.port, self.front.served
        log.info(
            "serving %s (%s) at http://%s:%s/, %s streams so far; Ctrl-C or SIGTERM saves them and "
            "ends",
            *(served.name, served.method, f"[{host}]" if ":" in host else host, port),
            len(self.front.service.fleet.streams()),
        )

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        tally = self.front.service.tally
        if counter % TICKS == 0 and tally.images != self._told:
            self._told = tally.images
            log.info(tell_briefly(self.front.service))
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("stopping: answering what waits, then saving")
        # Requests that wait for others to share their batch wait no longer.
        self.front.service.stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ending well is no failure: the signal is not raised again afterwards."""
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def open_socket(host: str, port: int) -> socket.socket:
    """Where to listen, taken before anything that takes long; port 0: any that is free."""
    if not 0 <= port <= PORTS:
        raise ValueError(f"Cannot listen at port {port}: choose one from 0 to {PORTS}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        raise ValueError(
            f"Cannot listen at {host}:{port} ({error}): choose another --host or --port."
        ) from None
    return found


def listen(front: Front, at: socket.socket) -> list[str]:
    """Serve until told to end; the streams that could not be saved then."""
    host, port = at.getsockname()[:2]
    try:
        Listener(front, host, port).run(sockets=[at])
    finally:
        unsaved = front.service.drain()
        for stream in unsaved:
            log.error("stream %s could not be saved: what it learnt of late is lost", stream)
        if not unsaved:
            log.info("all streams are saved; %s images served", front.service.tally.images)
    return unsaved
