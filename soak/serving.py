"""A server, killed and told to end under load, and hostile requests."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from pathlib import Path

import torch
from torch import Tensor

import holdfast
from holdfast.data import glyphs
from holdfast.serving.front import Front, Limits, Served
from holdfast.serving.listening import listen, open_socket
from holdfast.serving.service import Service, ServiceOptions
from holdfast.util.progress import progress
from soak.serve_client import Client, Refused, Unreachable
from soak.serve_fuzz import fuzz_server
from soak.verdict import Verdict

METHOD = "tent(lr=0.01)"
WINDOW = 4


class Case:
    """Streams with the answers that each image must get, whatever happens to the server."""

    def __init__(self, streams: int, images: int):
        self.model = glyphs.model()
        self.names = [f"s{index}" for index in range(streams)]
        drawn = glyphs.images("test", torch.arange(streams * images))
        self.images = dict(zip(self.names, drawn.split(images), strict=True))
        self.answers: dict[str, Tensor] = {}
        fleet = holdfast.Fleet(self.model, METHOD, window=WINDOW)
        for name, shown in self.images.items():
            self.answers[name] = torch.cat([fleet(name, image[None]) for image in shown])

    def serve(self, folder: Path, port: int, snapshot: float) -> None:
        """In a process of its own."""
        at = open_socket("127.0.0.1", port)
        fleet = holdfast.Fleet(self.model, METHOD, folder=folder, window=WINDOW)
        # One stream a step, so that answers are the same to the last bit, whoever comes at once.
        options = ServiceOptions(deadline=0.0, snapshot=snapshot, together=1)
        service = Service(fleet, options)
        side = self.images[self.names[0]].shape[-1]
        served = Served("model", "1", METHOD, side, self.answers[self.names[0]].shape[1])
        listen(Front(service, served, Limits()), at)


class Camera:
    """Sends its images in order, each until it is answered, and checks every answer."""

    def __init__(self, case: Case, name: str, client: Client):
        self.name, self.client = name, client
        self.images, self.answers = case.images[name], case.answers[name]
        self.next = 0
        self.answered: list[float] = []
        self.faults: list[str] = []

    def send(self) -> None:
        """Until the server is gone, or all are answered."""
        while self.next < len(self.images):
            image = self.images[self.next][None]
            try:
                logits = self.client.infer(self.name, image, f"{self.name}-{self.next}")
            except Unreachable:
                return
            except Refused as refused:
                if refused.status != 503:
                    self.faults.append(f"image {self.next} of {self.name} got {refused}")
                return
            self._check(logits)
            self.answered.append(time.monotonic())
            self.next += 1

    def _check(self, logits: Tensor) -> None:
        gap = (logits - self.answers[self.next]).abs().max()
        if float(gap) != 0:
            self.faults.append(f"image {self.next} of {self.name} got another answer, by {gap:.2g}")

    def go_on(self, killed: float, interval: float) -> int:
        """After a restart: how many answers the server has forgotten, which are sent again."""
        known = self.client.images_in_state(self.name)
        saved = sum(at < killed - interval for at in self.answered)
        if not saved <= known <= self.next + 1:
            self.faults.append(
                f"{self.name} goes on after {known} images; {self.next} were answered, {saved} of "
                "them longer ago than the interval"
            )
        lost = max(0, self.next - known)
        self.next = min(self.next, known)
        del self.answered[self.next :]
        return lost


class Endings:
    """Servers that are ended at random moments under load, one after the other."""

    def __init__(self, case: Case, how: signal.Signals, interval: float, seed: int, folder: Path):
        self.case, self.how, self.interval, self.folder = case, how, interval, folder
        self.dice = random.Random(seed)
        self.client = Client(0)
        self.cameras: list[Camera] = []
        self.answered = self.forgotten = self.rounds = 0
        self.faults: list[str] = []
        self.ended = 0.0
        # So that some are ended before they have saved anything, and some after.
        self.longest = 1.5 * interval if 0 < interval < 10 else 1.0

    def one(self) -> None:
        if all(camera.next == len(camera.images) for camera in self.cameras):
            self._begin()
        server = self._start()
        # What a server that ends well has not saved, it has lost.
        allowed = self.interval if self.how == signal.SIGKILL else 0.0
        for camera in self.cameras:
            self.forgotten += camera.go_on(self.ended, allowed)
        before = sum(camera.next for camera in self.cameras)
        threads = [threading.Thread(target=camera.send) for camera in self.cameras]
        for thread in threads:
            thread.start()
        time.sleep(self.dice.uniform(0.05, self.longest))
        self.ended = time.monotonic()
        assert server.pid is not None
        os.kill(server.pid, self.how)
        for thread in threads:
            thread.join()
        server.join()
        if server.exitcode != (-self.how if self.how == signal.SIGKILL else 0):
            self.faults.append(f"the server ended with {server.exitcode}")
        self.answered += sum(camera.next for camera in self.cameras) - before

    def _begin(self) -> None:
        """All images were sent: once more, from an empty folder."""
        self.faults += self.found()
        self.rounds += 1
        self.cameras = [Camera(self.case, name, self.client) for name in self.case.names]

    def _start(self) -> multiprocessing.process.BaseProcess:
        with open_socket("127.0.0.1", 0) as free:
            self.client.port = free.getsockname()[1]
        fork = multiprocessing.get_context("fork")
        folder = self.folder / str(self.rounds)
        server = fork.Process(
            target=self.case.serve, args=(folder, self.client.port, self.interval)
        )
        server.start()
        self.client.wait_until_ready()
        return server

    def found(self) -> list[str]:
        return [fault for camera in self.cameras for fault in camera.faults]


def end_servers(
    case: Case, times: int, how: signal.Signals, interval: float, seed: int
) -> tuple[Endings, list[str]]:
    with tempfile.TemporaryDirectory() as folder, progress(how.name, times) as advance:
        endings = Endings(case, how, interval, seed, Path(folder))
        for _ in range(times):
            endings.one()
            advance(1)
    faults = endings.faults + endings.found()
    if endings.forgotten and (how == signal.SIGTERM or interval == 0):
        faults.append(f"{endings.forgotten} answers were forgotten")
    return endings, faults


def serving(
    kills: int = 100, ends: int = 20, requests: int = 10_000, interval: float = 2.0, seed: int = 0
) -> Verdict:
    """SIGKILL and SIGTERM under load: every stream goes on from a state of its own that is no older
    than the interval, or has lost nothing. Hostile requests: none ends in a fault, and one that is
    refused changes nothing.

    kills: of servers that save within `interval` seconds, and as many of servers that save before
    each answer. ends: SIGTERMs. requests: hostile ones.
    """
    torch.set_num_threads(1)
    counts: dict[str, object] = {"seed": seed}
    failures: list[str] = []
    case = Case(streams=6, images=150)
    for name, number, how, every in (
        ("SIGKILL", kills, signal.SIGKILL, interval),
        ("SIGKILL, write-through", kills, signal.SIGKILL, 0.0),
        ("SIGTERM", ends, signal.SIGTERM, 1e6),
    ):
        if number:
            endings, faults = end_servers(case, number, how, every, seed)
            counts[name] = f"{number} ({endings.answered:,} images, {endings.forgotten} forgotten)"
            failures += [f"{name}: {fault}" for fault in faults]
    if requests:
        tried, faults = fuzz_server(requests, seed)
        counts["hostile requests"] = f"{requests:,} ({tried})"
        failures += faults
    return Verdict("serve", counts, tuple(dict.fromkeys(failures)))
