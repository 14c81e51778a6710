"""From paths to runs: what is found there, what can be read of it, and notes on the rest; and runs
that seem to be there, but were made by other code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.bench.code import code_hashes
from holdfast.bench.compared import NOT_IN_FINGERPRINT
from holdfast.bench.manifest import Manifest
from holdfast.bench.plan import Run
from holdfast.bench.store import RunFolder
from holdfast.results.stored import StoredRun, UnreadableError, printable, read
from holdfast.util.progress import progress
from holdfast.util.words import listed

# How far below a given folder runs are looked for, as in runs/experiment/method-s0.
DEPTH = 3
MARKS = ("manifest.json", "rows.parquet", "progress.json", "rows-*.parquet")
# What `holdfast run` keeps beside its runs.
OWN = {"cache"}
# Files that a report leaves, and nobody needs to be told of.
REPORTS = {".html", ".png", ".md", ".tex", ".log"}


@dataclass(frozen=True)
class Note:
    """What a reader should know of a file or folder."""

    path: str
    text: str


def _note(path: Path, text: str) -> Note:
    return Note(printable(str(path)), printable(text))


@dataclass(frozen=True)
class Gathered:
    """Runs in the order in which they were started."""

    runs: tuple[StoredRun, ...]
    notes: tuple[Note, ...]

    @property
    def finished(self) -> bool:
        return bool(self.runs) and all(run.finished for run in self.runs)


Known = dict[Path, tuple[object, StoredRun]]


def gather(*paths: str | Path, known: Known | None = None) -> Gathered:
    """`known`: what was read before, of which only what has changed is read again."""
    known = {} if known is None else known
    search = _Found()
    for path in paths:
        search.search(Path(path))
    runs: list[StoredRun] = []
    notes: list[Note] = []
    with progress("Reading runs", len(search.runs)) as advance:
        for folder in search.runs:
            signature = _signature(folder)
            try:
                if folder not in known or known[folder][0] != signature:
                    known[folder] = signature, read(folder)
                runs.append(known[folder][1])
                notes += [_note(folder, text) for text in runs[-1].notes]
            except (UnreadableError, OSError) as error:
                why = str(error)
                if isinstance(error, OSError):
                    why = f"it cannot be read ({error.strerror})"
                notes.append(_note(folder, f"{why}: it is left out."))
            advance(1)
    runs.sort(key=lambda run: (run.manifest.time_started, run.path.name))
    runs, doubles = _once(runs)
    return Gathered(tuple(runs), (*notes, *doubles, *search.notes()))


def _signature(folder: Path) -> list[tuple[str, int, int]]:
    """Changes when a run makes progress."""
    files = []
    for path in (*sorted(folder.glob("*.parquet")), folder / "manifest.json"):
        with suppress(OSError):
            stat = path.stat()
            files.append((path.name, stat.st_size, stat.st_mtime_ns))
    return files


class _Found:
    """What lies under some paths."""

    def __init__(self) -> None:
        self.runs: dict[Path, None] = {}
        self._foreign: dict[Path, list[str]] = {}
        self._walked: dict[Path, int] = {}
        """How far below each folder it was looked."""

    def search(self, path: Path) -> None:
        if not path.is_dir():
            raise ValueError(
                f"{path} is not a folder of runs: name what --out of `holdfast run` named, or "
                "folders of single runs."
            )
        self._walk(path.resolve(), DEPTH)

    def _walk(self, path: Path, depth: int) -> bool:
        """Whether there is a run in it or below; links may lead to folders read before."""
        if self._walked.get(path, -1) >= depth:
            return True
        self._walked[path] = depth
        if _is_run(path):
            self.runs.setdefault(path)
            return True
        try:
            children = sorted(path.iterdir())
        except OSError:
            self._pass_over(path)
            return False
        has_run = False
        for child in children:
            if child.name.startswith(".") or child.name in OWN or child.suffix in REPORTS:
                continue
            if (child / "lock").is_file() and not _is_run(child):
                continue  # a run that is about to begin
            if child.is_dir() and depth and self._walk(child.resolve(), depth - 1):
                has_run = True
            else:
                self._pass_over(child)
        return has_run

    def _pass_over(self, path: Path) -> None:
        self._foreign.setdefault(path.parent, []).append(path.name)

    def notes(self) -> Iterator[Note]:
        # A search from another folder may have gone deeper, and found runs here.
        with_runs = {folder for run in self.runs for folder in (run, *run.parents)}
        for path, names in self._foreign.items():
            passed = sorted({name for name in names if path / name not in with_runs})
            if passed:
                yield _note(path, f"no runs, and passed over: {listed(passed, 6)}.")


def _is_run(path: Path) -> bool:
    return any(next(path.glob(mark), None) for mark in MARKS)


def _once(runs: list[StoredRun]) -> tuple[list[StoredRun], list[Note]]:
    """The same run in two folders counts once: it is no second seed."""
    chosen: dict[str | Path, StoredRun] = {}
    notes = []
    for run in runs:
        key = run.manifest.fingerprint or run.path
        other = chosen.setdefault(key, run)
        if other is not run:
            dropped, chosen[key] = sorted(
                (run, other), key=lambda stored: (stored.finished, stored.done)
            )
            notes.append(
                _note(dropped.path, f"the same run as {chosen[key].path}, which is shown.")
            )
    return list(chosen.values()), notes


def of_other_code(runs: Iterable[Run], out: Path) -> list[RunFolder]:
    """Folders of these runs that other code made, where none was made by this code."""
    stored: list[tuple[RunFolder, Manifest]] = []
    for path in sorted(out.glob("*/manifest.json")):
        folder = RunFolder(path.parent)
        with suppress(ValueError):
            stored.append((folder, folder.manifest))
    outdated: list[RunFolder] = []
    for run in runs:
        same = [(folder, manifest) for folder, manifest in stored if _same_but_code(run, manifest)]
        code = code_hashes(run.methods)
        if not any(code.items() <= manifest.hashes.items() for _, manifest in same):
            outdated += [folder for folder, _ in same]
    return outdated


def _same_but_code(run: Run, manifest: Manifest) -> bool:
    """Whether a manifest is of this run, as far as names tell."""
    given = run.flat
    names = given.keys() - {*NOT_IN_FINGERPRINT, "method", "stream", "window"}
    return (
        all(manifest.run.get(name, given[name]) == given[name] for name in names)
        and manifest.method == run.composition.for_classes(manifest.classes).named_spec
        and manifest.stream == str(run.resolved_stream)
    )
