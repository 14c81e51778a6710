"""`holdfast serve`: a model that adapts to many streams, behind HTTP."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from holdfast.engine.health import Guard
from holdfast.util.imports import require

if TYPE_CHECKING:
    from holdfast.serving.front import Front

FOLDER = Path("streams")
WINDOW = 64
REPLICAS = 2
MEGABYTE = 2**20


@dataclass(frozen=True)
class Serve:
    """Serve a model that adapts to each of many streams by itself, over HTTP: tensors by the Open
    Inference Protocol, JPEG and PNG files as they are, metrics, a page."""

    data: str = "glyphs-c"
    """The data that the model is for: its model and its source images are taken where none are
    named."""
    model: str | None = None
    """As `run` takes it, such as resnet20:weights.safetensors or package.module:factory. Default:
    what comes with the data."""
    source: str | None = None
    """A saved Source, as `rehearse` writes it, or labelled clean images: a set by name, an .npz
    file, a folder of classes. Default: what belongs to the data, if anything does."""
    validation: str | None = None
    """Labelled clean images that the model was not trained on, to calibrate estimates of health on;
    256 are enough. Default: the source's."""
    method: Annotated[str | None, tyro.conf.arg(aliases=["-m"])] = None
    """As `run` takes it. Default: eata+debias+steady; what needs no source where there is none."""
    name: str = "model"
    """What the model is called in addresses, /v2/models/NAME/infer."""
    folder: Path = FOLDER
    """Where streams are kept, each in a file; those that are found there go on."""
    host: str = "127.0.0.1"
    """Where to listen. Anything but this machine needs a token."""
    port: int = 8080
    """Where to listen; 0: any port that is free."""
    token: str | None = None
    """What clients have to send, as in Authorization: Bearer TOKEN. Default: $HOLDFAST_TOKEN,
    else none, and only this machine is let in."""
    batch: int = 64
    """Images of a stream that are taken at a time, at most."""
    deadline: float = 0.01
    """Seconds that a request waits for others to share its batch."""
    snapshot: float = 30.0
    """Seconds after which a stream that has changed is saved, which is what a kill costs at most;
    0: before every answer."""
    window: int | None = None
    """Have the method see the latest so many images of a stream at once; 0: only those that came.
    Default: 64 where it cannot take single images otherwise."""
    guard: Guard = "alarm"
    """When adapting does harm, or predictions collapse: alarm tells; none does nothing; rollback
    goes back to the last healthy state; fallback also has the source model answer meanwhile."""
    resident: int = 1000
    """Streams that are held in memory, at most; others are saved, and come back when asked for."""
    max_streams: int = 10_000
    """How many streams there may be."""
    max_waiting: int = 1024
    """Images that may wait altogether; more are turned away with 429."""
    max_body: int = 16
    """Megabytes of one request, at most."""
    max_side: int = 4096
    """Pixels of a side of a picture that is sent, at most, before it is resized."""
    root: str | None = None
    """Where sets lie. Default: $HOLDFAST_DATA, else the folder data."""
    classes: str | None = None
    """A file that names the classes in order, one a line."""
    size: int | None = None
    """Side of the images that the model takes; pictures are resized and cropped to it. Default:
    that of the source images, else 224."""
    mean: str | None = None
    """Of the input normalisation that the model's weights were trained with."""
    std: str | None = None
    """The same, of the standard deviation."""
    head: str | None = None
    """Name of the model's layer that maps features to logits. Default: the last linear one."""
    device: str | None = None
    """As torch names it. Default: cuda where there is one, else cpu."""
    threads: int | None = None
    """Of the processor. Default: one for each core."""
    seed: int = 0
    """Of the method's own randomness."""
    log: Path | None = None
    """A file to write the log into. Default: the terminal."""
    engine: Literal["process", "ray"] = "process"
    """This process, or replicas on a Ray cluster, between which streams are shared out."""
    replicas: int | None = None
    """With --engine ray: how many. Default: 2."""
    address: str | None = None
    """With --engine ray: of the cluster: auto, ray://HOST:PORT, or local, this machine alone, which
    is the default."""

    def run(self) -> None:
        on_ray = self.engine == "ray"
        if not on_ray and (self.replicas, self.address) != (None, None):
            raise ValueError("--replicas and --address are for --engine ray: pass that too.")
        for package in ("starlette", "uvicorn", "prometheus_client", *(["ray"] if on_ray else [])):
            require(package, f"holdfast serve --engine {self.engine}")
        from holdfast.serving.door import check_open_to
        from holdfast.serving.listening import listen, open_socket
        from holdfast.serving.logs import start_log

        token = self.token or os.environ.get("HOLDFAST_TOKEN") or None
        check_open_to(self.host, token)
        start_log(self.log)
        if on_ray:
            self.run_on_ray(token)
            return
        with open_socket(self.host, self.port) as at:
            unsaved = listen(self.build(token), at)
        if unsaved:
            raise OSError(f"{len(unsaved)} streams could not be saved; the log names them.")

    def run_on_ray(self, token: str | None) -> None:
        from holdfast.cli.serve_ray import LOCAL, Place, serve_on_ray
        from holdfast.serving.ray_serve import ray_serve

        ray_serve()
        place = Place(
            host=self.host,
            port=self.port,
            address=self.address or LOCAL,
            replicas=REPLICAS if self.replicas is None else self.replicas,
            threads=self.threads,
            device=self.device,
            log=self.log,
        )
        same = replace(self, threads=place.each)
        serve_on_ray(partial(same.build, token), place)

    def build(self, token: str | None) -> Front:
        """All but the listening."""
        import torch

        import holdfast
        from holdfast.bench.given import share_of_cores
        from holdfast.bench.materials import Materials
        from holdfast.bench.plan import Run
        from holdfast.cli.served_model import keep_source, open_model, open_source, usual_method
        from holdfast.engine.network import fingerprint
        from holdfast.serving.front import Front, Limits, Served
        from holdfast.serving.service import Service, ServiceOptions

        limits = Limits(self.max_body * MEGABYTE, self.max_side)
        options = ServiceOptions(
            batch=self.batch,
            together=max(self.batch, ServiceOptions.together),
            deadline=self.deadline,
            snapshot=self.snapshot,
            waiting=self.max_waiting,
            streams=self.max_streams,
        )
        given = "data", "model", "source", "validation", "root", "classes", "size"
        named = {name: getattr(self, name) for name in (*given, "mean", "std", "head")}
        device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        threads = share_of_cores(1) if self.threads is None else self.threads
        run = Run.of("frozen", **named, device=device, threads=threads)
        torch.set_num_threads(threads)
        served = open_model(run, Materials(self.folder / "cache"))
        source, kept = open_source(run, served, self.folder)
        method = self.method or usual_method(served, source, self.head, device)
        composition = holdfast.compose(method)
        usual_window = WINDOW if composition.by_batch else 0
        fleet = holdfast.Fleet(
            served.model,
            composition,
            source=source,
            folder=self.folder / "states",
            resident=self.resident,
            seed=self.seed,
            head=self.head,
            window=(usual_window if self.window is None else self.window) or None,
            guard=self.guard,
        )
        keep_source(source, kept)
        about = Served(
            name=self.name,
            version=fingerprint(served.model)[:12],
            method=composition.names,
            side=served.side,
            classes=served.classes,
        )
        return Front(Service(fleet, options), about, limits, token)
