"""Hostile requests at a server's endpoints: none ends in a fault, and one that is refused changes
nothing."""

from __future__ import annotations

import asyncio
import io
import json
import random
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import torch

import holdfast
from holdfast.data import glyphs
from holdfast.serving.front import Front, Limits, Served
from holdfast.serving.service import Service, ServiceOptions
from holdfast.util.progress import progress

STREAMS = ("good-0", "good-1")
NAMES = (
    *STREAMS,
    *("", ".", "..", "../../etc/passwd", "a b", "x" * 5000, "%00", "ä", "\x7f", "-", "CON"),
)
PATHS = (
    *("/", "/metrics", "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/model"),
    *("/v2/models/model/infer",) * 12,
    *("/v2/models/other/infer", "/v2/streams", "/v2/streams/{}", "/v2/streams/{}/reset"),
    *(
        "/v2/streams/{}/snapshot",
        "/v2/snapshot",
        "/nothing",
        "//",
        "/v2/../metrics",
        "/v2/streams/",
    ),
)
METHODS = ("POST",) * 8 + ("GET", "GET", "PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW")
# What these do on purpose is no harm.
ON_PURPOSE = ("reset", "infer")


class Hostile:
    """Draws requests by a seed."""

    def __init__(self, seed: int, side: int):
        self.dice, self.side = random.Random(seed), side
        self.good = json.dumps(self._tensor()).encode()
        self.picture = _picture(side)

    def _tensor(self) -> dict[str, Any]:
        data = [round(self.dice.random(), 3) for _ in range(3 * self.side**2)]
        shape = [1, 3, self.side, self.side]
        return {"inputs": [{"name": "images", "datatype": "FP32", "shape": shape, "data": data}]}

    def request(self) -> tuple[str, str, list[tuple[bytes, bytes]], list[bytes]]:
        dice = self.dice
        path = dice.choice(PATHS).format(dice.choice(NAMES).replace("/", "%2F"))
        headers = [(b"host", dice.choice((b"127.0.0.1",) * 57 + (b"evil", b"", b"[")))]
        if dice.random() < 0.9:
            headers.append((b"x-session-id", dice.choice(NAMES).encode("latin-1", "replace")))
        if dice.random() < 0.3:
            ids = (b"1", b"", b"\xff\x00", b"y" * 9000, b"{}")
            headers.append((b"x-request-id", dice.choice(ids)))
        if dice.random() < 0.1:
            headers.append((b"origin", dice.choice((b"http://evil", b"null", b"http://127.0.0.1"))))
        if dice.random() < 0.1:
            lengths = (b"-1", b"9" * 40, b"x", b"1000000000")
            headers.append((b"content-length", dice.choice(lengths)))
        return dice.choice(METHODS), path, headers, self._chunks(self._body())

    def _body(self) -> bytes:
        dice = self.dice
        kind = dice.randrange(6)
        if kind == 0:
            return dice.randbytes(dice.choice((0, 1, 50, 5000)))
        if kind == 1:
            return _damaged(self.picture, dice)
        if kind == 2:
            return _damaged(self.good, dice)
        return json.dumps(_mutated(json.loads(self.good), dice)).encode()

    def _chunks(self, body: bytes) -> list[bytes]:
        cut = self.dice.randrange(len(body) + 1)
        return [body[:cut], body[cut:]]


VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**63, 10**30, 1e308, "", "images", "NaN", [], [[]], {}, [1], "\x00"),
    *("FP64", "UINT8", "BYTES", [1, 3, 2**31, 2**31], [1, 3], [0, 3, 1, 1], {"name": "logits"}),
)


def _mutated(body: Any, dice: random.Random) -> Any:
    """The body with one of its parts replaced, removed or moved, a few times."""
    for _ in range(dice.randrange(1, 4)):
        part: Any = body
        while isinstance(part, dict | list) and part:
            key = dice.choice(list(part)) if isinstance(part, dict) else dice.randrange(len(part))
            if dice.random() < 0.4 or not isinstance(part[key], dict | list):
                if dice.random() < 0.2:
                    del part[key]
                else:
                    part[key] = dice.choice(VALUES)
                break
            part = part[key]
    return body


def _damaged(whole: bytes, dice: random.Random) -> bytes:
    body = bytearray(whole)
    for _ in range(dice.randrange(1, 8)):
        body[dice.randrange(len(body))] = dice.randrange(256)
    return bytes(body[: dice.randrange(len(body))] if dice.random() < 0.5 else body)


def _picture(side: int) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.effect_noise((side, side), 80).convert("RGB").save(file, "PNG")
    return file.getvalue()


async def ask(
    app: Callable[..., Awaitable[None]],
    method: str,
    path: str,
    headers: list[tuple[bytes, bytes]],
    chunks: list[bytes],
) -> tuple[int, bytes]:
    """As a server of HTTP hands a request on, with nothing made right on the way."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("latin-1", "replace"),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }
    unsent, sent = list(chunks), []

    async def receive() -> dict[str, Any]:
        if not unsent:
            return {"type": "http.disconnect"}
        body = unsent.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(unsent)}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], body


def fuzz_server(requests: int, seed: int) -> tuple[str, list[str]]:
    """How many were refused and taken; what was found."""
    model = glyphs.model()
    images = glyphs.images("test", torch.arange(4))
    with tempfile.TemporaryDirectory() as temporary:
        fleet = holdfast.Fleet(model, "tent", folder=Path(temporary), window=4)
        options = ServiceOptions(deadline=0.0, snapshot=1e6)
        served = Served("model", "1", "tent", images.shape[-1], 100)
        front = Front(Service(fleet, options), served, Limits(body=2**20))
        try:
            for stream, two in zip(STREAMS, images.split(2), strict=True):
                front.service.submit(stream, two).result(60)
            return asyncio.run(_fuzz(front, requests, seed))
        finally:
            front.service.drain()


async def _fuzz(front: Front, requests: int, seed: int) -> tuple[str, list[str]]:
    hostile = Hostile(seed, front.served.side)
    tally: Counter[int] = Counter()
    faults: dict[str, str] = {}
    before = _state(front)
    with progress("Hostile requests", requests) as advance:
        for _ in range(requests):
            request = method, path, _, chunks = hostile.request()
            example = f"{method} {path} {b''.join(chunks)[:200]!r}"
            try:
                status, text = await ask(front.app, *request)
            except Exception as error:  # what an app raises, a server answers with 500
                status, text = 500, repr(error).encode()
            tally[status] += 1
            after = _state(front)
            if status >= 500:
                faults.setdefault(f"{status} {text[:200]!r}", example)
            if status >= 400 and not (method == "HEAD" or b'"error"' in text):
                faults.setdefault(f"{status} without a word", example)
            if after != before and not (status == 200 and path.endswith(ON_PURPOSE)):
                faults.setdefault(f"{status}, and yet something changed", example)
            before = after
            advance(1)
    if front.bodies.held:
        faults["bodies"] = f"{front.bodies.held} bytes are held for ever"
    counts = ", ".join(f"{status}: {count:,}" for status, count in sorted(tally.items()))
    return counts, [f"{message}: {example}" for message, example in faults.items()]


def _state(front: Front) -> tuple[object, ...]:
    """All that a refused request may not change; nothing waits, so that nobody else looks."""
    fleet = front.service.fleet
    streams = fleet.streams()
    return (*streams, *(fleet.notes(stream).get("images") for stream in streams))
