"""One run as its folder tells it: finished, going on, half-written, or not a run of ours at all."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from holdfast.bench.compared import DECIDES_IMAGES, NOT_COMPARED
from holdfast.bench.manifest import Manifest, Metrics
from holdfast.bench.metrics.analysis import SCHEMA as ANALYSIS
from holdfast.bench.metrics.recorder import Recorder
from holdfast.bench.metrics.seen import SCHEMA, Seen
from holdfast.bench.options import OPTIONS, nested
from holdfast.bench.plan import Run
from holdfast.bench.store import DAMAGE, RunFolder
from holdfast.data.streams import Stream
from holdfast.data.streams import parse as parse_stream
from holdfast.engine.last import Activity
from holdfast.recipes.compose import parse
from holdfast.recipes.registry import find_loaded
from holdfast.util.words import first_line

# In tables, beside the name of a method.
IDLE = "hardly acted"
IDLE_NOTE = (
    f"Hardly acted: took fewer than {100 * Activity.HARDLY:.0f} % of {Activity.OVER} or more steps "
    "that it could have taken. Nothing counts as an improvement over it."
)
BATCHES = (
    *("batch", "visit", "domain", "images", "scored", "correct", "missed", "time"),
    *("estimated", "estimated_low", "estimated_high", "alarm", "fallback"),
)


class UnreadableError(ValueError):
    """A folder that is no run, or whose manifest cannot be read."""


@dataclass(frozen=True, eq=False)
class Replay:
    """The rows of a run, recorded again."""

    recorder: Recorder
    batches: pl.DataFrame
    """One row a batch, without what is known of single images."""
    problem: str = ""
    """Why rows after these cannot be read."""


@dataclass(frozen=True, eq=False)
class StoredRun:
    """What could be read of a run, and in `notes` what could not."""

    path: Path
    manifest: Manifest
    metrics: Metrics
    """As `Recorder.summary` names them, those on steps among them."""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, folder: RunFolder) -> StoredRun:
        """A finished run, as its manifest has it; rows are read when they are asked for."""
        manifest = folder.manifest
        return cls(folder.path, manifest, with_steps(manifest))

    @cached_property
    def replay(self) -> Replay:
        return _replay(RunFolder(self.path), self.manifest)

    @property
    def recorder(self) -> Recorder | None:
        """None where no row can be read: then the metrics are the manifest's."""
        return self.replay.recorder if len(self.batches) else None

    @property
    def batches(self) -> pl.DataFrame:
        return self.replay.batches

    @cached_property
    def analysis(self) -> pl.DataFrame | None:
        """One row a domain; None where it was not asked for, or cannot be read."""
        try:
            return read_analysis(RunFolder(self.path))
        except DAMAGE:
            return None

    @cached_property
    def run(self) -> Run:
        """What was run. A manifest that was not written by a run may be none: a ValueError."""
        return read_run(self.manifest)

    def option(self, name: str) -> Any:
        """An option of the run by its name on the command line. One that an older version did not
        have is what it was without it; None: not known."""
        run = self.manifest.run
        return run.get(name, OPTIONS[name].default if run else None)

    @property
    def title(self) -> str:
        return self.manifest.title or printable(self.path.name)

    @property
    def seed(self) -> int:
        seed = self.option("seed")
        return seed if isinstance(seed, int) else 0

    @property
    def finished(self) -> bool:
        return self.manifest.finished

    @property
    def done(self) -> int:
        return int(self.metrics.get("batches") or 0)

    @property
    def domains(self) -> list[str]:
        """In the order in which they came."""
        return list(self.by_domain("accuracy"))

    @cached_property
    def _stream(self) -> Stream | None:
        """None where no kind of stream is written so."""
        try:
            return parse_stream(self.manifest.stream)
        except (ArithmeticError, ValueError):
            return None

    @property
    def batch_size(self) -> int | None:
        return getattr(self._stream, "batch", None)

    @property
    def order(self) -> int | None:
        """Which random order of domains; None where it is not random."""
        is_random = getattr(self._stream, "order", None) == "random"
        return getattr(self._stream, "order_seed", 0) if is_random else None

    @cached_property
    def drift(self) -> str:
        """The stream without what repeats it or cuts it otherwise."""
        if self._stream is None:
            return self.manifest.stream
        repeats = {"batch", "order_seed"} & {setting.name for setting in self._stream.settings()}
        default: Any = dict.fromkeys(repeats)
        return str(replace(self._stream, **default))

    @property
    def key(self) -> str:
        """What tells it from other runs of its group."""
        return f"{self.seed} {self.manifest.stream}"

    @property
    def settings(self) -> dict[str, Any]:
        """Of its methods, by method.setting."""
        parts = self.manifest.settings.items()
        return {
            f"{part}.{name}": s.value for part, settings in parts for name, s in settings.items()
        }

    @cached_property
    def conditions(self) -> dict[str, Any]:
        """All that may set it apart from other runs on the same images, but the method."""
        manifest = self.manifest
        aside = {*NOT_COMPARED, *DECIDES_IMAGES}
        return {
            **{name: value for name, value in manifest.run.items() if name not in aside},
            "batch": self.batch_size,
            "version": manifest.versions.get("holdfast"),
            "source data": manifest.hashes.get("source"),
            "code": manifest.code[:8],
            **{name: str(value)[:8] for name, value in manifest.own_code.items()},
        }

    def metric(self, name: str) -> float:
        """NaN where it is not known."""
        value = self.metrics.get(name)
        return math.nan if value is None else float(value)

    def by_domain(self, name: str) -> dict[str, float]:
        """A metric of every domain, in the order in which they came."""
        prefix = f"{name}/"
        names = (key for key in self.metrics if key.startswith(prefix))
        return {key.removeprefix(prefix): self.metric(key) for key in names}


def read(path: Path) -> StoredRun:
    """Read a run's folder with all its rows, or raise `UnreadableError`."""
    folder = RunFolder(path)
    stored = _checked(folder)
    if stored.notes and not stored.finished and folder.finished:
        return _checked(folder)  # it was finished while it was read, and its parts went away
    return stored


def _checked(folder: RunFolder) -> StoredRun:
    """A run whose metrics are those of its rows, as far as these can be read."""
    if not folder.exists:
        raise UnreadableError("it has no manifest.json")
    try:
        stored = StoredRun.of(folder)
    except ValueError as error:
        raise UnreadableError(str(error).removeprefix(f"{folder.path}/")) from None
    replay, notes = stored.replay, []
    if replay.problem:
        done = len(replay.batches)
        shown = f"shown are the {done} batches before it" if done else "no row is shown"
        notes.append(f"rows cannot be read ({replay.problem}): {shown}.")
    try:
        read_analysis(folder)
    except DAMAGE as error:
        notes.append(f"analysis.parquet cannot be read ({first_line(error)}).")
    metrics = replay.recorder.summary()
    if notes and len(replay.batches) < (stored.metrics.get("batches") or 0):
        notes.append("Its metrics are those of its manifest; charts show what rows there are.")
        metrics = stored.metrics
    elif stored.manifest.metrics and not _agree(metrics, stored.manifest.metrics):
        notes.append("the metrics in its manifest are not those of its rows, which are shown.")
    checked = replace(stored, metrics=metrics, notes=tuple(notes))
    vars(checked)["replay"] = replay  # read once
    return checked


def _replay(folder: RunFolder, manifest: Manifest) -> Replay:
    recorder = Recorder(manifest.classes)
    rows: list[list[Any]] = []
    problem, learner = "", learns(manifest)
    try:
        for seen in folder.seen():
            _check(seen)
            due = learner and not seen.missed and seen.refused is None
            recorder.update(replace(seen, due=due) if seen.due is None else seen)
            row = seen.row()
            rows.append([row[name] for name in BATCHES])
    except DAMAGE as error:
        problem = first_line(error)
    batches = pl.DataFrame(rows, {name: SCHEMA[name] for name in BATCHES}, orient="row")
    return Replay(recorder, batches.with_columns(pl.col("time").fill_null(math.nan)), problem)


def _check(seen: Seen) -> None:
    """A foreign row must not get half-way into the recorder."""
    arrays = (seen.labels, seen.predicted, seen.confidence, seen.entropy)
    if not len(seen) or any(array.shape != (len(seen),) for array in arrays):
        raise ValueError(f"batch {seen.batch} does not hold one value an image")
    if len(seen.domains) != len(seen) or not all(isinstance(name, str) for name in seen.domains):
        raise ValueError(f"batch {seen.batch} does not hold one domain an image")
    if (seen.confidence < 0).any():
        raise ValueError(f"batch {seen.batch} has a confidence below 0")


def read_analysis(folder: RunFolder) -> pl.DataFrame | None:
    table = folder.analysis
    return None if table is None else table.select(*ANALYSIS).cast(dict(ANALYSIS))  # type: ignore[arg-type]


def read_run(manifest: Manifest) -> Run:
    """The run that a manifest is of, without running any code that it names: methods of one's own
    have to be loaded before."""
    method = manifest.run.get("method")
    if not isinstance(method, str):
        raise ValueError(
            "The manifest does not say which method was run: use the holdfast that wrote it, or "
            "run it again."
        )
    options = {name: value for name, value in manifest.run.items() if name in OPTIONS}
    run = object.__new__(Run)
    find = partial(find_loaded, hashes=manifest.hashes)
    vars(run)["methods"] = parse(method, find)
    try:
        Run.__init__(run, method, tags=manifest.tags, **nested(options))
    except (AttributeError, TypeError) as error:  # an option is of another type than it can be
        raise ValueError(
            f"The manifest's options are none of a run ({first_line(error)}): use the holdfast "
            "that wrote it, or run it again."
        ) from None
    return run


def _agree(first: Metrics, second: Metrics) -> bool:
    """Whether two sets of metrics agree where both have one: an older version wrote down fewer, and
    took the rate of steps of all batches."""
    older = set() if "steps_due" in second else {"step_rate"}
    names = (first.keys() & second.keys()) - older
    pairs = [[math.nan if v is None else float(v) for v in (first[n], second[n])] for n in names]
    both = np.array(pairs).reshape(-1, 2)
    return bool(np.allclose(both[:, 0], both[:, 1], rtol=1e-6, atol=1e-9, equal_nan=True))


def printable(text: str) -> str:
    """With U+FFFD for half characters, which names of files may hold and nothing can write."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


# Whether a method did what it is for: nothing is an improvement over one that hardly acted.


def hardly_acts(metrics: Mapping[str, float | None]) -> bool:
    """Whether the method took next to none of the steps it could have taken; see `with_steps`."""
    due, rate = metrics.get("steps_due"), metrics.get("step_rate")
    return due is not None and due >= Activity.OVER and rate is not None and rate < Activity.HARDLY


def steps_taken(runs: Iterable[Mapping[str, float | None]]) -> str:
    """`1 step of 128`, over the metrics of some runs."""
    known = list(runs)
    taken, due = (
        sum(round(metrics.get(name) or 0) for metrics in known) for name in ("steps", "steps_due")
    )
    return f"{taken:,} step{'' if taken == 1 else 's'} of {due:,}"


def with_steps(manifest: Manifest) -> Metrics:
    """A run's metrics with `steps`, `steps_due` and `step_rate`, also of a run from before these
    were written down: there, a method that learns could take a step in every batch that was
    neither missed nor refused."""
    metrics = manifest.metrics
    if metrics.get("steps_due") is not None or metrics.get("batches") is None:
        return metrics
    if not learns(manifest):
        return {**metrics, "step_rate": None}
    came = (metrics["batches"] or 0) - (metrics.get("missed") or 0)
    taken = round((metrics.get("step_rate") or 0) * came)
    due = came - (metrics.get("refused") or 0)
    return {**metrics, "steps": taken, "steps_due": due, "step_rate": taken / due if due else None}


def learns(manifest: Manifest) -> bool:
    """Whether the run's method takes gradient steps: then its settings have a learning rate."""
    return any("lr" in settings for settings in manifest.settings.values())
