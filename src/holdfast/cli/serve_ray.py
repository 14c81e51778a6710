"""`holdfast serve --engine ray`: the same server as replicas on a Ray cluster."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.util.cpu import SLEEP, tune_cpu

if TYPE_CHECKING:
    from holdfast.serving.front import Front

log = logging.getLogger("holdfast.serving")

# Of the Serve application.
NAME = "holdfast"
LOCAL = "local"


@dataclass(frozen=True)
class Place:
    """Where replicas run, and where they are to be found. log: a file, else the terminal."""

    host: str
    port: int
    address: str
    replicas: int
    threads: int | None
    device: str | None
    log: Path | None

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ValueError(f"--replicas is a number of at least 1, not {self.replicas}.")

    @property
    def each(self) -> int:
        """Threads of a replica: on this machine alone, they share its cores."""
        if self.threads is not None:
            return self.threads
        return max(1, cores() // self.replicas) if self.address == LOCAL else 1

    @property
    def room(self) -> int | None:
        """Cores that a cluster of this machine alone says it has."""
        return max(cores(), self.replicas * self.each) if self.address == LOCAL else None


def cores() -> int:
    return os.cpu_count() or 1


def serve_on_ray(build: Callable[[], Front], place: Place) -> None:
    """Serve until told to end; then all is answered and saved."""
    from holdfast.bench.on_ray import cluster
    from holdfast.serving.listening import open_socket
    from holdfast.serving.ray_serve import GRACE, application

    with open_socket(place.host, place.port) as free:
        where = {"host": place.host, "port": free.getsockname()[1]}
    # A mistake is told at once, and the source is made once for all replicas.
    front = build()
    front.service.drain()
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # a line of one stream is none of another's
    connected = cluster(place.address, place.room, logs=place.log is None)
    with connected as ray, told_to_end() as ended:
        serve = import_module("ray.serve")
        quiet = {"log_level": "WARNING", "enable_access_log": False}
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        serve.start(http_options=where, logging_config=quiet)
        needs = {
            "num_cpus": place.each,
            "num_gpus": int(has_gpu(ray, place.device)),
            "runtime_env": {"env_vars": SLEEP},
        }
        made = partial(build_replica, build, place.log, Path.cwd())
        app = application(made, replicas=place.replicas, ray_actor_options=needs)
        handle = serve.run(app, name=NAME, logging_config=quiet)
        log.info(
            "serving %s (%s) at http://%s:%s/ by %s replicas, %s streams so far; Ctrl-C or SIGTERM "
            "saves them and ends",
            *(front.served.name, front.served.method, *where.values(), place.replicas),
            len(front.service.fleet.streams()),
        )
        while not ended:
            time.sleep(0.1)
        log.info("stopping: answering what waits, then saving")
        told = handle.broadcast("drain").results(timeout_s=GRACE, return_exceptions=True)
        with suppress(TimeoutError):  # what is left of them ends with the cluster, or later
            serve.delete(NAME)
        if place.address == LOCAL:
            serve.shutdown()
    conclude(told)


def conclude(told: list[Any]) -> None:
    """What the replicas said when they ended: each the streams that could not be saved."""
    silent = [one for one in told if isinstance(one, BaseException)]
    unsaved = sorted({stream for one in told if isinstance(one, list) for stream in one})
    for stream in unsaved:
        log.error("stream %s could not be saved: what it learnt of late is lost", stream)
    if unsaved:
        raise OSError(f"{len(unsaved)} streams could not be saved; the log names them.")
    if silent:
        raise OSError(f"{len(silent)} replicas ended before they had saved: {silent[0]}")
    log.info("all streams are saved")


def build_replica(build: Callable[[], Front], path: Path | None, folder: Path) -> Front:
    """In a replica's process: as the one that was started here would do."""
    from holdfast.serving.logs import start_log

    tune_cpu()
    try:
        os.chdir(folder)
    except OSError as error:
        raise ValueError(f"Every machine of the cluster has to have {folder}: {error}") from None
    start_log(path)
    return build()


def has_gpu(ray: Any, device: str | None) -> bool:
    """Whether a replica is to have a GPU of its own: as asked for, else where there are any."""
    return device.startswith("cuda") if device else "GPU" in ray.cluster_resources()


@contextmanager
def told_to_end() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM are noted, and do nothing else. A list, since the next signal may come
    while the last is being noted."""
    ended: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda one, _: ended.append(one)) for number in numbers}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
