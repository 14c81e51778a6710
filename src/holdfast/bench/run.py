"""One run: stream, adapt, record; stop at any moment and go on."""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import holdfast
from holdfast.bench.manifest import describe
from holdfast.bench.materials import Materials
from holdfast.bench.metrics.analysis import Geometry
from holdfast.bench.metrics.recorder import Recorder
from holdfast.bench.metrics.seen import MIXED, Seen
from holdfast.bench.metrics.tally import mean
from holdfast.bench.plan import Run
from holdfast.bench.store import DAMAGE, RunFolder
from holdfast.data.streams import Batch
from holdfast.engine.adapter import Adapter
from holdfast.util.cpu import release_memory
from holdfast.util.progress import stoppable
from holdfast.util.threads import threads
from holdfast.util.words import first_line

# Seconds between two snapshots: what a kill costs at most.
SNAPSHOT_SECONDS = 60.0
# Seconds between two times that rows are written for those who watch; a resumed run drops what is
# later than its snapshot.
ROWS_SECONDS = 5.0

STATUS = Path("/proc/self/status")
MEGABYTE = 1e6


@dataclass(frozen=True)
class Progress:
    """How far a run is, and which process does it."""

    done: int
    batches: int
    domain: str
    """Of the latest batch."""
    scores: Mapping[str, float]
    """Accuracy so far by domain, in %."""
    pid: int = field(default_factory=os.getpid)

    @property
    def accuracy(self) -> float:
        """Mean over domains."""
        return mean(self.scores.values())


def ignore(*news: object) -> None:
    """Ignore all news."""


def perform(
    run: Run,
    materials: Materials,
    out: Path,
    *,
    resume: bool = False,
    again: bool = False,
    tell: Callable[[Progress], None] = ignore,
    every: float = SNAPSHOT_SECONDS,
) -> RunFolder:
    """Do a run, or go on with it, or take it as it is if it is finished.

    again: do it anew whatever there is, which is replaced once the new one is finished.
    tell: hears how far it is, once at the start and after each batch.
    """
    hashes = materials.hashes(run)
    target = RunFolder(run.folder(out, run.fingerprint(hashes)))
    anew = again and target.exists and not (resume and not target.finished)
    folder = target.beside if anew else target
    recorder = Recorder(materials.classes(run))
    batches = len(materials.flow(run))

    def report(domain: str) -> None:
        tell(Progress(recorder.batches, batches, domain, recorder.scores))

    with folder.held(), threads(run.machine.threads):
        if anew and not resume:
            folder.discard()
        if folder.exists:
            if not (resume or folder.finished):
                raise ValueError(
                    f"{folder.path} holds a run that was stopped: pass --resume to finish it, "
                    "--again to begin anew, or --out for another folder."
                )
            folder.tag(run.tags)
        if folder.finished:
            folder.clear()
            _recall(folder, recorder, report)
        else:
            _go_on(run, materials, folder, recorder, report, every)
    if anew:
        folder.replace(target)
    return target


def _go_on(
    run: Run,
    materials: Materials,
    folder: RunFolder,
    recorder: Recorder,
    report: Callable[[str], None],
    every: float,
) -> None:
    done, snapshot = folder.resume()
    adapter = _prepare(run, materials, snapshot)
    if not folder.exists:  # what does not fit together leaves no folder
        folder.manifest = describe(run, materials)
    geometry = None
    if run.analysis:
        source = materials.source(run)
        assert source is not None  # what is analysed has a source
        geometry = Geometry(source.prototypes, source.counts)
        if snapshot is not None:
            geometry.load(snapshot / "analysis.safetensors")
    _recall(folder, recorder, report)
    memory = PeakMemory(torch.device(run.machine.device))

    def save(path: Path) -> None:
        adapter.save(path / "adapter.safetensors")
        if geometry is not None:
            geometry.save(path / "analysis.safetensors")

    rows: list[dict[str, Any]] = []
    saved = written = time.monotonic()
    noted = False
    with stoppable() as stop, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what is refused, and collapse, is recorded
        for batch in materials.flow(run).batches(done, workers=run.machine.workers):
            seen = show(adapter, batch, memory.read, geometry)
            rows.append(seen.row())
            recorder.update(seen)
            report(seen.domain or MIXED)
            if adapter.last.hardly_acts and not noted:
                noted = True
                print(f"note: {adapter.inactivity()}", file=sys.stderr, flush=True)
            done += 1
            if stop.asked or time.monotonic() - saved >= every:
                folder.snapshot(done, rows, save)
                rows, saved = [], time.monotonic()
            elif time.monotonic() - max(saved, written) >= ROWS_SECONDS:
                folder.write(rows)
                written = time.monotonic()
            if stop.asked:
                raise KeyboardInterrupt
    folder.finish(rows, recorder.summary(), None if geometry is None else geometry.rows())


def _recall(folder: RunFolder, recorder: Recorder, report: Callable[[str], None]) -> None:
    """Record again what is written down of a run."""
    try:
        for seen in folder.seen():
            recorder.update(seen)
        folder.analysis  # noqa: B018  # what is damaged is found here, not in a table at the end
    except DAMAGE as error:
        raise ValueError(
            f"{folder.path} is damaged ({first_line(error)}): pass --again to have it run anew, or "
            "--out for another folder."
        ) from error
    report(next(reversed(recorder.domains), ""))


def _prepare(run: Run, materials: Materials, snapshot: Path | None) -> Adapter:
    """The adapter at the start of the stream, or as it was after some batches."""
    model = materials.model(run)
    if snapshot is not None:
        path = snapshot / "adapter.safetensors"
        return holdfast.load(path, model, materials.source(run))
    with materials.preparing(run):
        return holdfast.adapt(
            model,
            run.composition,
            source=materials.source(run),
            seed=run.seed,
            head=run.model.head,
            window=run.effective_window,
            precision=run.model.precision,
            guard=run.watch.guard,
            health=run.health_options,
        )


def show(
    adapter: Adapter, batch: Batch, peak: Callable[[], float], geometry: Geometry | None = None
) -> Seen:
    """Show the adapter a batch's images and nothing else of it; what is recorded."""
    features = None if geometry is None else adapter.features(batch.images)
    start = time.perf_counter()
    # A method that is busy may not learn from what it missed, yet has to answer.
    if batch.missed:
        logits, uncorrected = adapter.answer(batch.images)
    else:
        logits, uncorrected = adapter(batch.images), None  # `adapter.last` has it
    if logits.device.type != "cpu":
        torch.accelerator.synchronize(logits.device)
    spent = time.perf_counter() - start
    if geometry is not None and features is not None:
        geometry.update(
            features, batch.labels, batch.domains, visit=batch.visit, prototypes=adapter.prototypes
        )
    return Seen.of(
        logits,
        batch.labels,
        batch.domains,
        batch=batch.index,
        visit=batch.visit,
        missed=batch.missed,
        last=None if batch.missed else adapter.last,
        health=adapter.health,
        time=spent,
        memory=peak(),
        uncorrected=uncorrected,
    )


class PeakMemory:
    """The most memory in use since it was made, in MB: the device's on a GPU, the process's
    otherwise. NaN where the system does not tell."""

    def __init__(self, device: torch.device):
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        elif STATUS.exists():
            # Free what earlier work left behind, so that it does not count.
            release_memory()
            # The high-water mark starts anew; where it may not, it is that of the process so far.
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")

    def read(self) -> float:
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / MEGABYTE
        try:
            text = STATUS.read_text()
        except OSError:
            return math.nan
        _, label, value = text.partition("VmHWM:")
        return int(value.split()[0]) * 1024 / MEGABYTE if label else math.nan
