"""The service over HTTP: the Open Inference Protocol, pictures, streams, metrics, a page."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from weakref import WeakValueDictionary

import anyio.to_thread
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from torch import Tensor

import holdfast
from holdfast.serving import protocol
from holdfast.serving.bodies import Bodies
from holdfast.serving.door import Door
from holdfast.serving.errors import BusyError, ConflictError, ServingError, UnknownStreamError
from holdfast.serving.metrics import exposition
from holdfast.serving.peers import Alone, Desk, Peers, outcome
from holdfast.serving.pictures import is_picture, read_picture
from holdfast.serving.service import Service
from holdfast.serving.telling import latest, merge_streams

# Threads that decode, beside the one that computes.
DECODERS = 2


@dataclass(frozen=True)
class Served:
    """What is served. version: tells models apart; method: as a spec string; side: of the images
    that the model takes; classes: how many it knows."""

    name: str
    version: str
    method: str
    side: int
    classes: int
    channels: int = 3

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.channels, self.side, self.side


@dataclass(frozen=True)
class Limits:
    """body: bytes of a request; side: pixels of a picture's, before it is resized."""

    body: int = 16 * 2**20
    side: int = 4096

    def __post_init__(self) -> None:
        for name, least in (("body", 1024), ("side", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"--max-{name} is at least {least}, not {getattr(self, name)}.")


@dataclass(frozen=True)
class Query:
    """A request to infer, decoded. id: as the client named it; key: what a retry is known by."""

    images: Tensor
    id: str | None
    key: str | None
    outputs: list[str]


class Front:
    """The endpoints. `app` is what a server of HTTP runs; `peers`, who else serves them."""

    def __init__(
        self,
        service: Service,
        served: Served,
        limits: Limits = Limits(),  # noqa: B008
        token: str | None = None,
    ):
        self.service = service
        self.served = served
        self.limits = limits
        self.desk = Desk(service)
        self.peers: Peers = Alone(self.desk)
        self.bodies = Bodies(limits.body)
        self.decoders = CapacityLimiter(DECODERS)
        # One request of a stream is decoded at a time, so that they keep the order they came in.
        self.turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.app = Starlette(
            routes=self._routes(),
            middleware=[Middleware(Door, token=token)],
            exception_handlers={
                ServingError: _refusal,
                HTTPException: _no_such_thing,
                Exception: _fault,
            },
        )

    def _routes(self) -> list[Route]:
        model = f"/v2/models/{self.served.name}"
        post = ["POST"]
        return [
            Route("/", self.page),
            Route("/metrics", self.metrics),
            Route("/v2", self.server),
            Route("/v2/health/live", self.live),
            Route("/v2/health/ready", self.ready),
            Route(model, self.model),
            Route(f"{model}/ready", self.ready),
            Route(f"{model}/infer", self.infer, methods=post),
            Route("/v2/models/{path:path}", self.no_such_model, methods=["GET", *post]),
            Route("/v2/streams", self.streams),
            Route("/v2/streams/{stream}", self.stream),
            Route("/v2/streams/{stream}", self.remove, methods=["DELETE"]),
            Route("/v2/streams/{stream}/reset", self.reset, methods=post),
            Route("/v2/streams/{stream}/snapshot", self.snapshot, methods=post),
            Route("/v2/snapshot", self.snapshot_all, methods=post),
            Route("/v2/drain", self.drain, methods=post),
        ]

    async def no_such_model(self, request: Request) -> Response:
        asked, _, what = request.path_params["path"].partition("/")
        name = self.served.name
        if asked == name:  # with another method, or nothing at all
            raise HTTPException(405 if what in ("", "ready", "infer") else 404)
        raise HTTPException(404, f"There is no model {asked!r}, this server's is called {name!r}")

    # Images.

    async def infer(self, request: Request) -> Response:
        stream = protocol.check_stream(request.headers.get("x-session-id"))
        id = protocol.check_request(request.headers.get("x-request-id"))
        async with self.bodies.read(request) as body, self.turns.setdefault(stream, asyncio.Lock()):
            query = await anyio.to_thread.run_sync(self.decode, body, id, limiter=self.decoders)
            future = self.service.submit(stream, query.images, query.key)
        answered = await outcome(future)
        told = protocol.response(vars(self.served), stream, answered, query.id, query.outputs)
        return Response(told, media_type="application/json")

    def decode(self, body: bytes, id: str | None) -> Query:
        if is_picture(body):
            images = read_picture(body, self.limits.side, self.served.side)
            outputs = list(protocol.OUTPUTS)
        else:
            asked = protocol.read_request(body)
            # A proxy in front, such as Ray Serve's, may have added a header of its own.
            id = id if asked.id is None else protocol.check_request(asked.id)
            most = self.service.options.together
            images = protocol.read_images(asked, most_images=most, expected=self.served.shape)
            outputs = [output.name for output in asked.outputs or ()] or list(protocol.OUTPUTS)
        # Some clients number their requests from 1 each time they start: those are no retries.
        digest = hashlib.blake2b(body, digest_size=16).hexdigest()
        return Query(images, id, None if id is None else f"{id}:{digest}", outputs)

    # Streams.

    async def streams(self, request: Request) -> Response:
        told = merge_streams(list((await self.peers.ask("streams")).values()))
        return JSONResponse({"model": self._about(), **told})

    async def stream(self, request: Request) -> Response:
        name = protocol.check_stream(request.path_params["stream"])
        told = latest((await self.peers.ask("stream", name)).values())
        if told is None:
            raise UnknownStreamError(
                f"There is no stream {name!r}: it begins with its first image."
            )
        return JSONResponse(told)

    async def reset(self, request: Request) -> Response:
        name = protocol.check_stream(request.path_params["stream"])
        await outcome(self.service.reset(name))
        return JSONResponse({"stream": name, "reset": True})

    async def remove(self, request: Request) -> Response:
        name = protocol.check_stream(request.path_params["stream"])
        await outcome(self.service.remove(name))
        return JSONResponse({"stream": name, "removed": True})

    async def snapshot(self, request: Request) -> Response:
        name = protocol.check_stream(request.path_params["stream"])
        return JSONResponse({"stream": name, "saved": await outcome(self.service.snapshot(name))})

    async def snapshot_all(self, request: Request) -> Response:
        return JSONResponse({"saved": sum((await self.peers.ask("snapshot")).values())})

    async def drain(self, request: Request) -> Response:
        unsaved = await self.peers.drain()
        return JSONResponse({"drained": not unsaved, "unsaved": unsaved}, 500 if unsaved else 200)

    # About itself.

    async def page(self, request: Request) -> Response:
        text, script = page_text()
        policy = (
            f"default-src 'none'; connect-src 'self'; script-src '{script}'; "
            "style-src 'unsafe-inline'"
        )
        return HTMLResponse(text, headers={"Content-Security-Policy": policy})

    async def metrics(self, request: Request) -> Response:
        told = exposition(await self.peers.ask("metrics"))
        return Response(told, media_type="text/plain; version=0.0.4")

    async def server(self, request: Request) -> Response:
        return JSONResponse({"name": "holdfast", "version": holdfast.__version__, "extensions": []})

    async def live(self, request: Request) -> Response:
        live = not self.service.failed
        return JSONResponse({"live": live}, 200 if live else 503)

    async def ready(self, request: Request) -> Response:
        ready = self.service.ready
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def model(self, request: Request) -> Response:
        channels, height, width = self.served.shape
        logits = [-1, self.served.classes]
        return JSONResponse(
            {
                **self._about(),
                "versions": [self.served.version],
                "platform": "holdfast",
                "inputs": [
                    {
                        "name": protocol.INPUT,
                        "datatype": "FP32",
                        "shape": [-1, channels, height, width],
                    }
                ],
                "outputs": [
                    {"name": protocol.LOGITS, "datatype": "FP32", "shape": logits},
                    {"name": protocol.CLASS, "datatype": "INT64", "shape": [-1]},
                ],
            }
        )

    def _about(self) -> dict[str, str]:
        served = self.served
        return {"name": served.name, "version": served.version, "method": served.method}


@cache
def page_text() -> tuple[str, str]:
    """The page, and the hash of its script that a browser is told to run."""
    text = resources.files("holdfast.serving").joinpath("page/streams.html").read_text("utf-8")
    script = text.partition("<script>")[2].partition("</script>")[0]
    return text, f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServingError)
    headers = {"Retry-After": f"{error.after:g}"} if isinstance(error, BusyError) else {}
    text = str(error)
    if isinstance(error, ConflictError):
        text += (
            " Over HTTP, POST /v2/streams/NAME/reset begins a damaged stream anew, and "
            "DELETE /v2/streams/NAME forgets any, with its file."
        )
    return JSONResponse({"error": text}, error.status, headers)


async def _no_such_thing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = f"{error.detail}: {request.method} {request.url.path}. GET /v2/streams, or see the docs."
    return JSONResponse({"error": text}, error.status_code, error.headers)


async def _fault(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": f"A fault in the server: {error!r}"}, 500)
