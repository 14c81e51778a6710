"""Bodies of requests, read while there is room for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import ClientDisconnect, Request

from holdfast.serving.errors import BadRequestError, BusyError, TooLargeError

# Of the largest body, how many are held at a time, and how long one may take to come.
AT_A_TIME = 8
SECONDS = 30.0


class Bodies:
    """most: bytes of one body; all that are held together may have some times as many."""

    def __init__(self, most: int, seconds: float = SECONDS):
        self.most = most
        self.seconds = seconds
        self.held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """The body, for as long as it is needed."""
        body = bytearray()
        try:
            try:
                await asyncio.wait_for(self._fill(body, request), self.seconds)
            except asyncio.TimeoutError:
                raise BadRequestError(
                    f"The body did not come within {self.seconds:g} seconds: send it again."
                ) from None
            except ClientDisconnect:
                raise BadRequestError("The body was cut short: send it again.") from None
            yield bytes(body)
        finally:
            self.held -= len(body)

    async def _fill(self, body: bytearray, request: Request) -> None:
        length = request.headers.get("content-length", "")
        if length.isdecimal() and len(length) < 20:
            self._check(int(length))
        async for chunk in request.stream():
            self._check(len(body) + len(chunk))
            if self.held + len(chunk) > AT_A_TIME * self.most:
                raise BusyError(
                    "Too many large requests come at once: send it again a little later."
                )
            body += chunk
            self.held += len(chunk)

    def _check(self, size: int) -> None:
        if size > self.most:
            raise TooLargeError(
                f"The body has more than {self.most:,} bytes, which are the most: send fewer "
                "images at a time, or start the server with a larger --max-body."
            )
