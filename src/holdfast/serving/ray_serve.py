"""Streams on Ray Serve: each stream belongs to one replica of a deployment, on any machine of a
cluster, over the same core and the same endpoints as `holdfast serve`.

Serve's proxy sends a stream, by a consistent hash of x-session-id, always to the same replica,
which batches by itself. When replicas come and go some streams move: who has one hands it over, and
where that one was killed, the next goes on from the stream's file. So all machines have to share
the folder of the streams, on a file system whose locks hold between machines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Any

import anyio.to_thread
from torch import Tensor

from holdfast.serving.errors import NotOfferedError, ServingError
from holdfast.serving.front import Front
from holdfast.serving.peers import outcome
from holdfast.util.imports import require

log = logging.getLogger("holdfast.serving")

NAME = "holdfast"
ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
# Seconds that a replica has to answer what waits and to save, before it is killed.
GRACE = 300.0
# Seconds between two looks at whether a replica lives: so long its streams wait when it was killed.
LOOK = 2.0
# The replica itself turns away what is too much, and says so; Serve would have it wait unseen.
REQUESTS = 10_000
# Seconds for all replicas to answer what they are asked.
PATIENCE = 60.0


class Streams:
    """A replica. build: makes its front, in the replica's own process."""

    def __init__(self, build: Callable[[], Front]):
        serve = import_module("ray.serve")
        context = serve.get_replica_context()
        self.name = str(context.replica_id.unique_id)
        self.front = build()
        handle = serve.get_deployment_handle(context.deployment, context.app_name)
        self.front.peers = Replicas(handle)
        log.info("replica %s serves %s", self.name, self.front.served.name)

    def __serve_build_asgi_app__(self) -> Any:
        return self.front.app

    async def infer(self, stream: str, images: Tensor, request: str | None = None) -> Tensor:
        """For other deployments: handle.options(session_id=stream).infer.remote(stream, images)."""
        return (await outcome(self.front.service.submit(stream, images, request))).logits

    async def answer(self, what: str, *arguments: str) -> tuple[str, Any]:
        """What other replicas ask."""
        return self.name, await getattr(self.front.desk, what)(*arguments)

    async def drain(self) -> list[str]:
        """Take nothing more, answer what waits, save all; the streams that could not be saved."""
        return await anyio.to_thread.run_sync(self.front.service.drain)

    def check_health(self) -> None:
        if self.front.service.failed:
            raise RuntimeError("The service has failed: the log says why.")

    async def __del__(self) -> None:
        """Serve calls it when a replica is to end; one that is killed is never asked."""
        if front := vars(self).get("front"):
            for stream in await anyio.to_thread.run_sync(front.service.drain):
                log.error("stream %s could not be saved: what it learnt of late is lost", stream)


class Replicas:
    """All replicas of a deployment."""

    def __init__(self, handle: Any):
        self.handle = handle

    async def ask(self, what: str, *arguments: str) -> dict[str, Any]:
        response = self.handle.broadcast("answer", what, *arguments)
        try:
            found = await response.results_async(timeout_s=PATIENCE, return_exceptions=True)
        except TimeoutError:
            raise ServingError(
                f"Not every replica has answered within {PATIENCE:g} seconds: see their logs."
            ) from None
        gone = import_module("ray.exceptions").RayActorError
        told = {}
        for one in found:
            if isinstance(one, BaseException):
                if not isinstance(one, gone):
                    raise getattr(one, "cause", None) or one
            else:
                told[one[0]] = one[1]
        return told

    async def drain(self) -> list[str]:
        raise NotOfferedError(
            "Ray Serve starts replicas by itself, so that they cannot be drained for good from "
            "here: end the application (serve.delete, or SIGTERM to `holdfast serve`), which "
            "answers what waits and saves everything. POST /v2/snapshot saves all streams now."
        )


def ray_serve() -> Any:
    """Ray Serve, with all that is needed of it."""
    require("ray", "Ray Serve")
    try:
        import_module(ROUTER.rpartition(".")[0])
        return import_module("ray.serve")
    except ImportError as error:
        raise ValueError(
            f"Ray is installed without Serve, or older than its sessions, 2.56 ({error}): "
            "pip install 'holdfast[ray]'."
        ) from error


def deployment(*, replicas: int = 1, **options: Any) -> Any:
    """A deployment to bind to a function that makes a `Front`, which every replica calls for
    itself: deployment(replicas=2).bind(build). options: others of `serve.deployment`."""
    serve = ray_serve()
    if "request_router_config" in options:
        raise ValueError(
            "request_router_config is what keeps a stream at one replica: leave it out."
        )
    router = import_module("ray.serve.config").RequestRouterConfig(
        request_router_class=ROUTER,
        # One that is busy is waited for: with the state of another, a stream would fork.
        request_router_kwargs={"num_fallback_replicas": 0},
    )
    scaled = {} if "autoscaling_config" in options else {"num_replicas": replicas}
    settings = {
        "name": NAME,
        "max_ongoing_requests": REQUESTS,
        "graceful_shutdown_timeout_s": GRACE,
        "health_check_period_s": LOOK,
        **scaled,
        **options,
    }
    return serve.deployment(serve.ingress()(Streams), request_router_config=router, **settings)


def application(build: Callable[[], Front], *, replicas: int = 1, **options: Any) -> Any:
    """A Serve application for `serve.run`, `serve deploy` or another's: see `deployment`."""
    return deployment(replicas=replicas, **options).bind(build)
