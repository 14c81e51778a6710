"""Folders of runs: manifests, rows and notes of progress that were damaged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.bench.run import perform
from holdfast.bench.store import RunFolder
from holdfast.results.stored import read, read_run
from soak.hostile.damage import byte_edits, edit_json, edited, json_edits
from soak.hostile.door import Door

FILES = ("manifest.json", "rows.parquet", "progress.json")


class ManifestDoor(Door):
    """One file of a run is damaged, then the run is read, and gone on with."""

    name = "run folder"

    def __init__(self, folder: Path):
        run = Run.of("bn", stream="continual(order='fog,snow',clean=false)", limit=8, batch=4)
        done = perform(run, Materials(folder / "cache"), folder / "runs").path
        self.original, self.damaged = folder / "original", folder / "damaged"
        shutil.copytree(done, self.original)
        (self.original / "progress.json").write_text(json.dumps({"batches": 2}))

    def inputs(self) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.tuples(st.sampled_from(FILES), st.just("bytes"), byte_edits()),
            st.tuples(st.just("manifest.json"), st.just("values"), json_edits()),
            st.tuples(st.just("progress.json"), st.just("values"), json_edits()),
        )

    def attempt(self, given: Any) -> None:
        name, kind, edits = given
        shutil.rmtree(self.damaged, ignore_errors=True)
        shutil.copytree(self.original, self.damaged)
        path = self.damaged / name
        if kind == "bytes":
            path.write_bytes(edited(path.read_bytes(), edits))
        else:
            path.write_text(json.dumps(edit_json(json.loads(path.read_text()), edits)))
        if name == "progress.json":
            RunFolder(self.damaged).resume()
            return
        stored = read(self.damaged)
        # What a report asks of a run: all of it has an answer, whatever stands in the manifest.
        for shown in ("title", "seed", "done", "domains", "batch_size", "order", "drift", "key"):
            getattr(stored, shown)
        dict(stored.settings), dict(stored.conditions), stored.analysis
        read_run(stored.manifest)
