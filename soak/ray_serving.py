"""Streams on Ray Serve, replicas of which are killed, or come and go, under load."""

from __future__ import annotations

import os
import random
import re
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import holdfast
from holdfast.bench.on_ray import cluster
from holdfast.data import glyphs
from holdfast.serving.front import Front, Served
from holdfast.serving.listening import open_socket
from holdfast.serving.ray_serve import application
from holdfast.serving.service import Service, ServiceOptions
from soak.serve_client import Client, Refused, Unreachable
from soak.verdict import Verdict

METHOD = "tent(lr=0.01)"
WINDOW = 4
# Answers of the proxy or a replica after which a client sends the same again.
AGAIN = (409, 429, 500, 502, 503, 504)
# Of a stream, which come again and again; and seconds between an answer and the next of them.
IMAGES = 50
PAUSE = 0.1
# Seconds after which something is wrong.
PATIENCE = 300.0


def build(folder: Path, snapshot: float) -> Front:
    """In the process of a replica, which leaves its number where it can be killed by."""
    torch.set_num_threads(1)
    fleet = holdfast.Fleet(glyphs.model(), METHOD, folder=folder / "states", window=WINDOW)
    # One stream a step, so that answers are the same to the last bit, whoever comes at once.
    service = Service(fleet, ServiceOptions(deadline=0.0, snapshot=snapshot, together=1))
    image = glyphs.images("test", torch.arange(1))
    classes = len(glyphs.model()(image)[0])
    (folder / f"{os.getpid()}.pid").touch()
    return Front(service, Served("model", "1", METHOD, image.shape[-1], classes))


class Camera(threading.Thread):
    """Sends images of a stream in order, each until it is answered, and compares every answer with
    that of an adapter of its own."""

    def __init__(self, name: str, images: Tensor, client: Client):
        super().__init__(daemon=True)
        self.stream, self.images, self.client = name, images, client
        self.adapter = holdfast.adapt(glyphs.model(), METHOD, window=WINDOW)
        self.ended = threading.Event()
        self.answered = self.wrong = 0
        self.again: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> None:
        while not (self.ended.is_set() or self.faults):
            image = self.images[self.answered % len(self.images)][None]
            found = self._send(image)
            if found is None:
                return
            gap = float((found - self.adapter(image)).abs().max())
            if gap != 0:
                self.wrong += 1
                self.faults.append(
                    f"image {self.answered} of {self.stream} got another answer, by {gap:.2g}"
                )
            self.answered += 1
            time.sleep(PAUSE)

    def _send(self, image: Tensor) -> Tensor | None:
        ends = time.monotonic() + PATIENCE
        while time.monotonic() < ends:
            try:
                return self.client.infer(self.stream, image, f"{self.stream}-{self.answered}")
            except Unreachable:
                self.again["unreachable"] += 1
            except Refused as refused:
                if refused.status not in AGAIN:
                    self.faults.append(f"image {self.answered} of {self.stream} got {refused}")
                    return None
                self.again[str(refused.status)] += 1
            time.sleep(0.1)
        self.faults.append(f"image {self.answered} of {self.stream} was not answered")
        return None


class Load:
    """Streams that send to an application while it changes."""

    def __init__(self, streams: int, snapshot: float, folder: Path):
        with open_socket("127.0.0.1", 0) as free:
            self.client = Client(free.getsockname()[1])
        self.folder, self.snapshot = folder, snapshot
        drawn = glyphs.images("test", torch.arange(streams * IMAGES)).split(IMAGES)
        self.cameras = [
            Camera(f"s{index}", shown, self.client) for index, shown in enumerate(drawn)
        ]

    def deploy(self, serve: Any, replicas: int) -> None:
        made = partial(build, self.folder, self.snapshot)
        options = {"num_cpus": 0.1}  # more replicas than cores, on a small machine
        serve.run(
            application(made, replicas=replicas, ray_actor_options=options),
            logging_config={"log_level": "WARNING", "enable_access_log": False},
        )

    def replicas(self) -> list[int]:
        """The processes that serve now."""
        found = [int(path.stem) for path in self.folder.glob("*.pid")]
        return sorted(pid for pid in found if is_alive(pid))

    def has(self, replicas: int) -> bool:
        return len(self.replicas()) == replicas

    def serving(self) -> int:
        """How many replicas have answered images."""
        try:
            _, text = self.client.ask("GET", "/metrics")
        except Unreachable:
            return 0
        told = re.findall(r"^holdfast_images_total\{.*\} (\S+)$", text.decode(), re.MULTILINE)
        return sum(float(count) > 0 for count in told)

    def wait(self, done: Any, what: str) -> float:
        """Seconds until it is so."""
        began = time.monotonic()
        while not done():
            if time.monotonic() - began > PATIENCE:
                raise TimeoutError(f"Not within {PATIENCE:g} seconds: {what}.")
            time.sleep(0.02)
        return time.monotonic() - began

    def all_answer(self) -> float:
        """Seconds until every stream has answered an image that was sent from now on."""
        # One that is on its way now may have been answered before.
        before = {camera: camera.answered + 1 for camera in self.cameras}
        return self.wait(
            lambda: all(one.answered > count or one.faults for one, count in before.items()),
            "every stream answers",
        )

    def found(self) -> tuple[dict[str, object], list[str]]:
        """Figures, and what is wrong, once nothing more is sent."""
        for camera in self.cameras:
            camera.ended.set()
        faults, lost = [], 0
        for camera in self.cameras:
            camera.join()
            faults += camera.faults
            known = self.client.images_in_state(camera.stream)
            lost += max(0, camera.answered - known)
            if known != camera.answered:
                faults.append(
                    f"{camera.stream} has learnt {known} images, and answered {camera.answered}"
                )
        counts: dict[str, object] = {
            "streams": len(self.cameras),
            "images": sum(camera.answered for camera in self.cameras),
            "sent again": dict(sum((camera.again for camera in self.cameras), Counter[str]())),
            "lost": lost,
            "forked": sum(camera.wrong > 0 for camera in self.cameras),
        }
        return counts, faults


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def loaded(streams: int, snapshot: float, replicas: int) -> Iterator[tuple[Load, Any]]:
    """An application under load, on a cluster of this machine."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, cluster("local", 4):
        from ray import serve

        load = Load(streams, snapshot, Path(folder))
        where = {"host": "127.0.0.1", "port": load.client.port}
        serve.start(http_options=where, logging_config={"log_level": "WARNING"})
        try:
            load.deploy(serve, replicas)
            load.client.wait_until_ready()
            for camera in load.cameras:
                camera.start()
            yield load, serve
        finally:
            serve.shutdown()


def kill_some(kills: int, load: Load, replicas: int, dice: random.Random) -> dict[str, object]:
    """At random moments under load, the next when all is as before."""
    answer_again, replaced = [], []
    load.all_answer()
    for _ in range(kills):
        time.sleep(dice.uniform(0.5, 3.0))
        os.kill(dice.choice(load.replicas()), signal.SIGKILL)
        answer_again.append(load.all_answer())
        more = load.wait(lambda: load.serving() == replicas, "a new replica has its share")
        replaced.append(answer_again[-1] + more)
        load.all_answer()
    return {
        "replicas": replicas,
        "kills": kills,
        "seconds until all answer again": [round(seconds, 1) for seconds in answer_again],
        "seconds until replaced": [round(seconds, 1) for seconds in replaced],
    }


def change_number(load: Load, serve: Any) -> dict[str, object]:
    """Of replicas: up and down again."""
    for replicas in (3, 1):
        load.all_answer()
        load.deploy(serve, replicas)
        load.wait(partial(load.has, replicas), "replicas come and go")
    load.all_answer()
    return {"replicas": "1, 3, 1"}


def ray_serving(kills: int = 3, streams: int = 16, seed: int = 0, moving: bool = True) -> Verdict:
    """Two replicas on Ray Serve that save before each answer, one or the other killed under load:
    every stream answers again, none has lost anything, and none goes on in two ways. Then replicas
    that never save by themselves come and go: streams are handed over with all they have learnt.
    """
    counts: dict[str, object] = {"seed": seed}
    failures: list[str] = []
    if kills:
        with loaded(streams, 0.0, 2) as (load, _):
            counts |= kill_some(kills, load, 2, random.Random(seed))
            found, faults = load.found()
        counts |= found
        failures += faults
    if moving:
        with loaded(streams, 1e6, 1) as (load, serve):
            done = change_number(load, serve)
            found, faults = load.found()
        counts["handed over"] = ", ".join(f"{what} {n}" for what, n in {**done, **found}.items())
        failures += [f"handed over: {fault}" for fault in faults]
    return Verdict("ray", counts, tuple(failures))
