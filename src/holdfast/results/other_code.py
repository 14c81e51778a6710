"""Stored runs that seem to be there, but were made by other code."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from holdfast.bench.code import code_hashes
from holdfast.bench.manifest import Manifest
from holdfast.bench.options import NOT_IN_FINGERPRINT
from holdfast.bench.plan import Run
from holdfast.bench.store import RunFolder


def of_other_code(runs: Iterable[Run], out: Path) -> list[RunFolder]:
    """Where some of these runs are as other code made them, and not as this one does."""
    stored: list[tuple[RunFolder, Manifest]] = []
    for path in sorted(out.glob("*/manifest.json")):
        folder = RunFolder(path.parent)
        with suppress(ValueError):
            stored.append((folder, folder.manifest))
    others: list[RunFolder] = []
    for run in runs:
        same = [(folder, one) for folder, one in stored if _same_but_code(run, one)]
        code = code_hashes(run.methods)
        if not any(code.items() <= manifest.hashes.items() for _, manifest in same):
            others += [folder for folder, _ in same]
    return others


def _same_but_code(run: Run, manifest: Manifest) -> bool:
    """Whether a manifest is of this run, as far as names tell."""
    given = run.flat
    names = given.keys() - {*NOT_IN_FINGERPRINT, "method", "stream", "window"}
    return (
        all(manifest.run.get(name, given[name]) == given[name] for name in names)
        and manifest.method == run.composition.for_classes(manifest.classes).named_spec
        and manifest.stream == str(run.resolved_stream)
    )
