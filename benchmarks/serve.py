"""What a server costs beside the step: clients at once, each with a stream of single images.

    python benchmarks/serve.py

The embedded net and its images, sent as PNG files over connections that stay open; every twentieth
is sent twice under one id, as by a client that did not hear. At the end no answer may be missing,
every stream has learnt each of its images once, and the answers of some streams are compared with
those of an adapter of their own. `bare`: that adapter, with no server around it.
"""

import http.client
import io
import json
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import holdfast

holdfast.tune_cpu()  # before torch is loaded

import numpy as np  # noqa: E402
import torch  # noqa: E402
import tyro  # noqa: E402
from PIL import Image  # noqa: E402

from holdfast.bench.opening import shuffled  # noqa: E402
from holdfast.data import glyphs  # noqa: E402
from holdfast.serving.front import Front, Limits, Served  # noqa: E402
from holdfast.serving.listening import listen, open_socket  # noqa: E402
from holdfast.serving.service import Service, ServiceOptions  # noqa: E402
from holdfast.util.terminal import columns, show  # noqa: E402

AGAIN = 20


def png(image):
    file = io.BytesIO()
    Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy()).save(file, "PNG")
    return file.getvalue()


class Case:
    def __init__(self, method, clients, images):
        self.model, self.method = glyphs.model(), method
        drawn = glyphs.Glyphs("train", 2_000)
        self.source = holdfast.Source.from_loader(self.model, shuffled(drawn, 2_000))
        share = -(-images // clients)
        shown = (glyphs.images("test", torch.arange(clients * share)) * 255).round() / 255
        self.images = shown.split(share)
        self.files = [[png(image) for image in stream] for stream in self.images]

    def adapter(self):
        return holdfast.adapt(self.model, self.method, source=self.source)

    def serve(self, folder, port, options):
        fleet = holdfast.Fleet(self.model, self.method, source=self.source, folder=folder)
        served = Served("model", "1", self.method, self.images[0].shape[-1], len(glyphs.CLASSES))
        at = open_socket("127.0.0.1", port)
        listen(Front(Service(fleet, options), served, Limits()), at)


class Client:
    """Sends the images of one stream, one after the other."""

    def __init__(self, case, index, port):
        self.files, self.name = case.files[index], f"stream-{index}"
        self.port = port
        self.seconds, self.logits = [], []

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        for number, file in enumerate(self.files):
            headers = {"x-session-id": self.name, "x-request-id": str(number)}
            for _ in range(2 if number % AGAIN == 0 else 1):
                began = time.perf_counter()
                connection.request("POST", "/v2/models/model/infer", file, headers)
                answer = json.loads(connection.getresponse().read())
                self.seconds.append(time.perf_counter() - began)
            assert answer["id"] == str(number), answer
            self.logits.append(answer["outputs"][0]["data"])
        connection.request("GET", f"/v2/streams/{self.name}")
        self.learnt = json.loads(connection.getresponse().read())["images_in_state"]
        connection.close()


def wait_for(port):
    for _ in range(6000):
        try:
            http.client.HTTPConnection("127.0.0.1", port, timeout=5).request("GET", "/")
            return
        except OSError:
            time.sleep(0.02)
    raise SystemExit("The server did not start.")


def measure(case, clients, options):
    """Latencies and the rate of one server; what is wrong with its answers."""
    with tempfile.TemporaryDirectory() as folder:
        with open_socket("127.0.0.1", 0) as free:
            port = free.getsockname()[1]
        fork = multiprocessing.get_context("fork")
        server = fork.Process(target=case.serve, args=(Path(folder), port, options))
        server.start()
        wait_for(port)
        sent = [Client(case, index, port) for index in range(clients)]
        threads = [threading.Thread(target=client.run) for client in sent]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent = time.perf_counter() - began
        os.kill(server.pid, signal.SIGTERM)
        server.join()
    faults = [
        f"{client.name} has {len(client.logits)} answers and learnt {client.learnt} images"
        for client in sent
        if not len(client.logits) == client.learnt == len(client.files)
    ]
    return sent, spent, faults


def compare(case, sent, streams):
    """Adapters of their own: seconds of each step, and how far answers are off, relatively."""
    seconds, off = [], 0.0
    for index in range(streams):
        adapter = case.adapter()
        for image, answered in zip(case.images[index], sent[index].logits, strict=True):
            began = time.perf_counter()
            logits = adapter(image[None])[0]
            seconds.append(time.perf_counter() - began)
            gap = (logits - torch.tensor(answered)).abs().max() / logits.abs().max()
            off = max(off, float(gap))
    return seconds, off


def main(
    clients: int = 64,
    images: int = 10_000,
    method: str = "eata+debias+steady",
    deadline: float = 0.01,
    snapshot: float = 30.0,
    compared: int = 4,
    threads: int = 1,
) -> None:
    """compared: streams that an adapter of their own goes through too."""
    torch.set_num_threads(threads)
    case = Case(method, clients, images)
    options = ServiceOptions(deadline=deadline, snapshot=snapshot)
    alone, alone_spent, faults = measure(case, 1, options)
    sent, spent, more = measure(case, clients, options)
    bare, off = compare(case, sent, compared)
    table = columns("", "p50, ms", "p99, ms", "images a second")
    for name, seconds, rate in (
        ("bare, one image after the other", bare, len(bare) / sum(bare)),
        ("1 client", alone[0].seconds, len(alone[0].files) / alone_spent),
        (
            f"{clients} clients",
            [second for client in sent for second in client.seconds],
            sum(len(client.files) for client in sent) / spent,
        ),
    ):
        half, most = np.quantile(seconds, (0.5, 0.99)) * 1000
        table.add_row(name, f"{half:.1f}", f"{most:.1f}", f"{rate:.1f}")
    show(table)
    answers = sum(len(client.logits) for client in sent)
    print(f"{answers:,} images answered; answers of {compared} streams off by {off:.1e} at most")
    for fault in faults + more:
        print(f"found: {fault}")
    raise SystemExit(bool(faults + more) or off > 1e-3)


if __name__ == "__main__":
    tyro.cli(main)
