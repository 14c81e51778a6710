"""One run as its folder tells it: finished, going on, half-written, or not a run of ours at all."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from holdfast.bench.metrics.analysis import SCHEMA as ANALYSIS
from holdfast.bench.metrics.recorder import Figures, Recorder
from holdfast.bench.metrics.seen import MIXED, Seen
from holdfast.bench.store import FORMAT, RunFolder
from holdfast.data.streams import parse as parse_stream
from holdfast.results.acting import learns, with_due, with_steps
from holdfast.util.words import first_line

BATCHES: dict[str, pl.DataType] = {
    "batch": pl.Int64(),
    "visit": pl.Int64(),
    "domain": pl.String(),
    "images": pl.Int64(),
    "scored": pl.Int64(),
    "correct": pl.Int64(),
    "missed": pl.Boolean(),
    "time": pl.Float64(),
}
# What a damaged or foreign parquet file may raise; a panic of polars is no Exception.
DAMAGE = (Exception, pl.exceptions.PanicException)


# More classes than anyone has would take all memory.
MOST = 1_000_000
# No figure is as large, nor any stream as long; what is larger yet is no float.
ENDLESS = 10**15
# A manifest of ours is a few levels deep.
DEEP = 50


class UnreadableError(ValueError):
    """A folder that is no run, or whose manifest cannot be read."""


@dataclass(frozen=True, eq=False)
class StoredRun:
    """What could be read of a run, and in `notes` what could not."""

    path: Path
    manifest: Mapping[str, Any]
    figures: Figures
    """As `Recorder.summary` names them, with those on steps."""
    recorder: Recorder | None
    """None where rows cannot be read: then the figures are the manifest's."""
    batches: pl.DataFrame
    """One row a batch, without what is known of single images."""
    analysis: pl.DataFrame | None
    notes: tuple[str, ...] = ()

    # What the manifest says; a foreign one may hold anything.

    @property
    def title(self) -> str:
        return _text(self.manifest.get("title")) or printable(self.path.name)

    @property
    def run(self) -> Mapping[str, Any]:
        found = self.manifest.get("run")
        return found if isinstance(found, Mapping) else {}

    @property
    def seed(self) -> int:
        found = self.run.get("seed")
        return found if isinstance(found, int) else 0

    @property
    def tags(self) -> tuple[str, ...]:
        found = self.run.get("tags")
        return tuple(map(str, found)) if isinstance(found, list) else ()

    @property
    def finished(self) -> bool:
        return bool(self.manifest.get("finished"))

    @property
    def planned(self) -> int | None:
        """Batches in all."""
        found = self.manifest.get("batches")
        return found if isinstance(found, int) and 0 < found < ENDLESS else None

    @property
    def done(self) -> int:
        found = self.figures.get("batches")
        return int(found) if found else 0

    @property
    def domains(self) -> list[str]:
        """In the order in which they came."""
        prefix = "accuracy/"
        return [name.removeprefix(prefix) for name in self.figures if name.startswith(prefix)]

    @property
    def stream(self) -> str:
        return _text(self.manifest.get("stream")) or "unknown"

    @property
    def order(self) -> int | None:
        """Which random order of domains; None where it is not random."""
        if "order=random" not in self.stream:
            return None
        found = re.search(r"order_seed=(\d+)", self.stream)
        return int(found[1]) if found else 0

    @cached_property
    def batch_size(self) -> int | None:
        try:
            return parse_stream(self.stream).batch
        except (ArithmeticError, ValueError):
            return None

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Of its methods, by method.setting."""
        found = self.manifest.get("settings")
        parts = found.items() if isinstance(found, Mapping) else ()
        return {
            f"{part}.{name}": one.get("value")
            for part, each in parts
            if isinstance(each, Mapping)
            for name, one in each.items()
            if isinstance(one, Mapping)
        }

    @property
    def hashes(self) -> Mapping[str, Any]:
        found = self.manifest.get("hashes")
        return found if isinstance(found, Mapping) else {}

    @property
    def own_code(self) -> dict[str, Any]:
        """The hashes of files that did not come with holdfast: of methods, and of the model."""
        own = ("method ", "model file")
        return {name: one for name, one in self.hashes.items() if name.startswith(own)}

    def figure(self, name: str) -> float:
        """NaN where it is not known."""
        value = self.figures.get(name)
        return math.nan if value is None else float(value)


def read(path: Path) -> StoredRun:
    """Read a run's folder, or raise `UnreadableError`."""
    folder = RunFolder(path)
    manifest = _manifest(folder)
    found = _read_rows(folder, manifest)
    if found.notes and not manifest.get("finished") and folder.finished:
        # It was finished while it was read, and its parts went away.
        manifest = _manifest(folder)
        found = _read_rows(folder, manifest)
    return found


def _manifest(folder: RunFolder) -> dict[str, Any]:
    if not folder.exists:
        raise UnreadableError("it has no manifest.json")
    try:
        manifest: dict[str, Any] = _cleaned(folder.manifest, DEEP)
    except ValueError as error:
        raise UnreadableError(str(error).removeprefix(f"{folder.path}/")) from None
    except RecursionError:
        raise UnreadableError(
            "its manifest.json is not that of a run: it is nested too deeply"
        ) from None
    if manifest.get("format", FORMAT) != FORMAT:
        raise UnreadableError(
            f"its format is {manifest['format']!r}, and this holdfast reads format {FORMAT}"
        )
    classes = manifest.get("classes")
    if not isinstance(classes, int) or isinstance(classes, bool) or not 1 <= classes <= MOST:
        raise UnreadableError(
            "its manifest.json is not that of a run: it names no number of classes"
        )
    return manifest


def _cleaned(what: Any, depth: int) -> Any:
    """What a JSON file holds, with texts that can be written down."""
    if isinstance(what, str):
        return printable(what)
    if isinstance(what, dict | list) and not depth:
        raise RecursionError
    if isinstance(what, dict):
        return {printable(name): _cleaned(one, depth - 1) for name, one in what.items()}
    return [_cleaned(one, depth - 1) for one in what] if isinstance(what, list) else what


def printable(text: str) -> str:
    """Half a character, as JSON and names of files may hold, cannot be written: U+FFFD can."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _read_rows(folder: RunFolder, manifest: dict[str, Any]) -> StoredRun:
    recorder = Recorder(manifest["classes"])
    rows: list[tuple[Any, ...]] = []
    notes: list[str] = []
    learner = learns(manifest)
    try:
        for each in folder.seen():
            seen = with_due(each, learner)
            _check(seen)
            recorder.update(seen)
            rows.append(_row(seen))
    except DAMAGE as error:
        done = f"shown are the {len(rows)} batches before it" if rows else "no row is shown"
        notes.append(f"rows cannot be read ({first_line(error)}): {done}.")
    analysis = None
    try:
        analysis = _checked_analysis(folder.analysis)
    except DAMAGE as error:
        notes.append(f"analysis.parquet cannot be read ({first_line(error)}).")
    stored = _stored(manifest)
    figures = recorder.summary()
    if notes and len(stored) and len(rows) < (stored.get("batches") or 0):
        notes.append("Its figures are those of its manifest; charts show what rows there are.")
        figures = with_steps(stored, manifest)
    elif stored and not _agree(figures, stored):
        notes.append("the figures in its manifest are not those of its rows, which are shown.")
    return StoredRun(
        folder.path,
        manifest,
        figures,
        recorder if rows else None,
        pl.DataFrame(rows, schema=BATCHES, orient="row"),
        analysis,
        tuple(notes),
    )


def _check(seen: Seen) -> None:
    """A foreign row must not get half-way into the recorder."""
    arrays = (seen.labels, seen.predicted, seen.confidence, seen.entropy)
    if not len(seen) or any(array.shape != (len(seen),) for array in arrays):
        raise ValueError(f"batch {seen.batch} does not hold one value an image")
    if len(seen.domains) != len(seen) or not all(isinstance(one, str) for one in seen.domains):
        raise ValueError(f"batch {seen.batch} does not hold one domain an image")
    if (seen.confidence < 0).any():
        raise ValueError(f"batch {seen.batch} has a confidence below 0")


def _row(seen: Seen) -> tuple[Any, ...]:
    scored = seen.labels >= 0
    return (
        seen.batch,
        seen.visit,
        seen.domain or MIXED,
        len(seen),
        int(scored.sum()),
        int((scored & (seen.labels == seen.predicted)).sum()),
        seen.missed,
        seen.time,
    )


def _checked_analysis(table: pl.DataFrame | None) -> pl.DataFrame | None:
    return None if table is None else table.select(*ANALYSIS).cast(dict(ANALYSIS))  # type: ignore[arg-type]


def _stored(manifest: Mapping[str, Any]) -> Figures:
    """The figures that a manifest holds, as far as they are numbers."""
    found = manifest.get("figures")
    numbers = found.items() if isinstance(found, Mapping) else ()
    return {
        name: value
        for name, value in numbers
        if value is None
        or (isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < ENDLESS)
    }


def _agree(one: Figures, other: Figures) -> bool:
    """Where both have a figure: an older version wrote down fewer, and took the rate of steps of
    all batches."""

    def shared() -> Iterator[list[float]]:
        older = set() if "steps_due" in other else {"step_rate"}
        for name in (one.keys() & other.keys()) - older:
            values = (one[name], other[name])
            yield [math.nan if value is None else float(value) for value in values]

    pairs = np.array([*shared()]).reshape(-1, 2)
    return bool(np.allclose(pairs[:, 0], pairs[:, 1], rtol=1e-6, atol=1e-9, equal_nan=True))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
