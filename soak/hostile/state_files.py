"""State files of adapters, and files of sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

import holdfast
from holdfast.engine.network import fingerprint
from holdfast.util.files import tensor_hash
from soak.hostile.damage import file_edits, write_edited
from soak.hostile.door import Door, Harm
from soak.hostile.images import ADAPTERS
from soak.hostile.small import small_images, small_loader, small_net, small_source


class StateDoor(Door):
    """Damaged states are loaded; what is taken must then work."""

    name = "state file"

    def __init__(self, folder: Path):
        self.model = small_net()
        self.source = small_source(self.model)
        self.path, self.originals = folder / "state", {}
        for spec, options in ADAPTERS.items():
            adapter = holdfast.adapt(self.model, spec, source=self.source, **options)
            for seed in range(2):
                adapter(small_images(8, seed))
            self.originals[spec] = folder / f"original {len(self.originals)}"
            adapter.save(self.originals[spec])

    def inputs(self) -> st.SearchStrategy[Any]:
        return st.tuples(st.sampled_from(sorted(self.originals)), file_edits())

    def attempt(self, given: Any) -> None:
        spec, edits = given
        write_edited(self.originals[spec], edits, self.path)
        source = self.source if "rmt" in spec else None
        adapter = holdfast.load(self.path, self.model, source)
        tensors = adapter._state.saved()
        if any(bool(t.isnan().any()) for t in tensors.values() if t.is_floating_point()):
            raise Harm("a state with NaN was taken")
        logits = adapter(small_images(8))
        if adapter.last.refused is None and not logits.isfinite().all():
            raise Harm("a state was taken that gives logits that are not finite, unsaid")

    def state(self) -> str:
        tensors = {"torch": torch.get_rng_state(), **self.source.tensors}
        return tensor_hash(tensors, fingerprint(self.model))


class SourceDoor(Door):
    """Damaged sources are loaded, and adapters made with what is taken."""

    name = "source file"

    def __init__(self, folder: Path):
        self.model = small_net()
        source = small_source(self.model)
        for spec in ("eata+debias", "ttac", "rmt(warmup_samples=20)"):
            holdfast.adapt(self.model, spec, source=source)  # has all made that there is to make
        self.path, self.original = folder / "source", folder / "original"
        source.save(self.original)

    def inputs(self) -> st.SearchStrategy[Any]:
        specs = st.sampled_from(["eata+debias", "ttac", "rmt(warmup_samples=20)", "tent+debias"])
        return st.tuples(specs, file_edits())

    def attempt(self, given: Any) -> None:
        spec, edits = given
        write_edited(self.original, edits, self.path)
        source = holdfast.Source.load(self.path, loader=small_loader())
        adapter = holdfast.adapt(self.model, spec, source=source)
        logits = adapter(small_images(8))
        if adapter.last.refused is None and not logits.isfinite().all():
            raise Harm("a source was taken that gives logits that are not finite, unsaid")

    def state(self) -> str:
        return tensor_hash({"torch": torch.get_rng_state()}, fingerprint(self.model))
