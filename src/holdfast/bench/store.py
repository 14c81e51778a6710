"""A run's folder: a manifest, rows, and what a run that was stopped goes on from.

    manifest.json          what was run, with which weights, data, versions, machine; its metrics
    rows.parquet           one row a batch
    analysis.parquet       one row a domain, where it was asked for

and while it runs

    rows-000000.parquet    rows so far, in parts
    snapshot-000120/       the adapter after 120 batches
    progress.json          which snapshot counts
    lock                   held by the process that runs it

Every file is written whole or not at all, and each step leaves a folder that can be resumed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import polars as pl
from filelock import FileLock, Timeout
from msgspec.structs import replace

from holdfast.bench.manifest import Manifest, Metrics, now, read_manifest, write_manifest
from holdfast.bench.metrics.analysis import SCHEMA as ANALYSIS
from holdfast.bench.metrics.seen import SCHEMA, Seen
from holdfast.util import files

# What a damaged or foreign parquet file may raise; a panic of polars is no Exception.
DAMAGE = (Exception, pl.exceptions.PanicException)

# Seconds: processes that read images ahead for a run that was killed outlive it for a moment.
PATIENCE = 10.0


class RunFolder:
    """What stands on disk of one run."""

    def __init__(self, path: str | Path):
        self.path = Path(path)

    # What is there.

    @property
    def exists(self) -> bool:
        return (self.path / "manifest.json").is_file()

    @property
    def finished(self) -> bool:
        return self.exists and self.manifest.finished

    @property
    def manifest(self) -> Manifest:
        return read_manifest(self.path / "manifest.json")

    @manifest.setter
    def manifest(self, manifest: Manifest) -> None:
        write_manifest(self.path / "manifest.json", manifest)

    @property
    def rows(self) -> pl.DataFrame:
        """One a batch; of a run that goes on, those that are written down."""
        if self.finished:
            return pl.read_parquet(self.path / "rows.parquet")
        parts = [pl.scan_parquet(part) for part in self._parts()]
        return join(parts).collect() if parts else pl.DataFrame(schema=SCHEMA)

    def seen(self) -> Iterator[Seen]:
        """The rows as a recorder takes them, part by part."""
        parts = [self.path / "rows.parquet"] if self.finished else self._parts()
        for part in parts:
            for row in pl.read_parquet(part).iter_rows(named=True):
                yield Seen.from_row(row)

    @property
    def analysis(self) -> pl.DataFrame | None:
        path = self.path / "analysis.parquet"
        return pl.read_parquet(path) if path.is_file() else None

    def _parts(self) -> list[Path]:
        return sorted(self.path.glob("rows-*.parquet"))

    # A run that is done anew.

    @property
    def beside(self) -> RunFolder:
        """A folder for doing the run again, while the old one stays as it is; reports do not see
        it."""
        return RunFolder(self.path.with_name(f".{self.path.name}.again"))

    def discard(self) -> None:
        """Take away all but the lock."""
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()

    def replace(self, other: RunFolder) -> None:
        """Take the place of `other`, with its tags; a kill in between leaves both on disk."""
        self.tag(other.manifest.tags)
        old = other.path.with_name(f".{other.path.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        other.path.rename(old)
        self.path.rename(other.path)
        shutil.rmtree(old)

    # A run that goes on.

    @contextmanager
    def held(self) -> Iterator[None]:
        """Only one process runs it at a time; a killed one holds nothing any more."""
        self.path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path / "lock")
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout:
            raise ValueError(f"{self.path} is being run by another process.") from None
        try:
            yield
        finally:
            if not self.exists:
                (self.path / "lock").unlink(missing_ok=True)
            lock.release()
            with suppress(OSError):
                self.path.rmdir()  # where nothing was begun

    def tag(self, tags: Sequence[str]) -> None:
        """Have the manifest name these as well."""
        manifest = self.manifest
        all_tags = list(dict.fromkeys([*manifest.tags, *tags]))
        if len(all_tags) > len(manifest.tags):
            self.manifest = replace(manifest, run={**manifest.run, "tags": all_tags})

    def resume(self) -> tuple[int, Path | None]:
        """How many batches are done, and the snapshot after them; what lies beyond is dropped."""
        done = self._snapshot_batches()
        snapshot = self.path / f"snapshot-{done:06d}"
        for part in self._parts():
            if int(part.stem.removeprefix("rows-")) >= done:
                part.unlink()
        self._drop_snapshots(but=snapshot)
        for unfinished in self.path.glob(".*.part"):
            unfinished.unlink()
        return done, snapshot if done else None

    def _snapshot_batches(self) -> int:
        """After how many batches the latest snapshot is; 0: there is none."""
        path = self.path / "progress.json"
        if not path.is_file():
            return 0
        try:
            note = json.loads(path.read_text())
        except (ValueError, RecursionError):
            note = None
        done = note.get("batches") if isinstance(note, dict) else None
        if not isinstance(done, int) or isinstance(done, bool) or done < 1:
            raise ValueError(
                f"{path} is damaged; expected the number of batches done: pass --again to have the "
                "run begin anew."
            )
        return done

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The rows since the last snapshot, in place of fewer of them that were written before."""
        if rows:
            path = self.path / f"rows-{rows[0]['batch']:06d}.parquet"
            files.write_whole(path, lambda part: frame(rows).write_parquet(part))

    def snapshot(
        self, done: int, rows: Sequence[Mapping[str, Any]], save: Callable[[Path], None]
    ) -> None:
        """Write down the rows since the last snapshot and the state after `done` batches."""
        self.write(rows)
        folder = self.path / f"snapshot-{done:06d}"
        folder.mkdir(exist_ok=True)
        save(folder)
        progress = json.dumps({"batches": done})
        files.write_whole(self.path / "progress.json", lambda part: part.write_text(progress))
        self._drop_snapshots(but=folder)

    def finish(
        self,
        rows: Sequence[Mapping[str, Any]],
        metrics: Metrics,
        analysis: Sequence[Mapping[str, Any]] | None,
    ) -> None:
        """Put the parts together, then say that it is finished, then clear up."""
        self.write(rows)
        whole = join([pl.scan_parquet(part) for part in self._parts()])
        files.write_whole(self.path / "rows.parquet", lambda part: whole.sink_parquet(part))
        if analysis is not None:
            table = pl.DataFrame(analysis, schema=ANALYSIS)
            files.write_whole(
                self.path / "analysis.parquet", lambda part: table.write_parquet(part)
            )
        self.manifest = replace(self.manifest, metrics=metrics, time_finished=now(), finished=True)
        self.clear()

    def clear(self) -> None:
        """Take away what only a run that goes on needs."""
        for part in self._parts():
            part.unlink()
        self._drop_snapshots()
        for name in ("progress.json", "lock"):
            (self.path / name).unlink(missing_ok=True)

    def _drop_snapshots(self, but: Path | None = None) -> None:
        for snapshot in self.path.glob("snapshot-*"):
            if snapshot != but:
                shutil.rmtree(snapshot)


def frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows as a table, with columns for the terms that spoke."""
    names = dict.fromkeys(name for row in rows for name in row)
    schema: dict[str, Any] = {
        name: SCHEMA.get(name, pl.Float64() if name.startswith("loss/") else pl.Int64())
        for name in names
    }
    return pl.DataFrame([{name: row.get(name) for name in names} for row in rows], schema=schema)


def join(parts: Sequence[pl.LazyFrame]) -> pl.LazyFrame:
    """Parts one after the other; the same columns in the same order however it was cut."""
    names = {name for part in parts for name in part.collect_schema()}
    # An older version may not have written every column.
    return pl.concat([pl.LazyFrame(schema=SCHEMA), *parts], how="diagonal").select(
        *SCHEMA, *sorted(names - set(SCHEMA))
    )
