"""`holdfast data make`: a corrupted copy of a clean set, in a published layout.

Work is cut into blocks, spread over processes. What an image becomes depends on seed, corruption,
severity and index alone, so a copy that was interrupted and finished later is the same, bit for
bit, as one made in one go.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader, Dataset

import holdfast
from holdfast.data.corrupt.corrupted import Recipe, find_table
from holdfast.data.corrupt.corruptions import CORRUPTIONS, Table
from holdfast.data.images import Images
from holdfast.data.readers.layouts import SEVERITIES, check_severity
from holdfast.data.readers.sets import check_corruptions
from holdfast.data.writers import ArrayWriter, Block, FolderWriter, Writer, replace_whole
from holdfast.util.progress import progress
from holdfast.util.whole import whole

Layout = Literal["arrays", "folders"]
# Says how a copy was made; released sets have no such file.
ABOUT = "holdfast.json"


def make(
    clean: Images,
    out: str | Path,
    *,
    layout: Layout | None = None,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    table: Table | None = None,
    seed: int = 0,
    frost: str | Path | None = None,
    workers: int | None = None,
) -> Path:
    """Write a corrupted copy of `clean` into the folder `out`, or go on with one.

    `layout` is "arrays" (CIFAR-C's; all five severities, and the clean images as `original.npy`) or
    "folders" (ImageNet-C's, JPEG of quality 85); default: the one that `clean` comes in.
    """
    check_corruptions(corruptions)
    severities = [check_severity(severity) for severity in severities]
    seed = whole(seed, "seed")
    out = Path(out)
    table = table or find_table(clean)
    recipe = Recipe(table, seed, None if frost is None else Path(frost))
    layout = layout or ("arrays" if clean.file_name(0) is None else "folders")
    if layout == "arrays" and sorted(severities) != list(SEVERITIES):
        raise ValueError(
            f"Arrays hold all five severities, not only {list(severities)}: choose "
            "layout='folders', or have the clean set corrupted as it is read."
        )
    _write_about(out, clean, layout, recipe)
    writer: Writer
    if layout == "arrays":
        writer = ArrayWriter(clean, out, recipe, tuple(corruptions))
    else:
        writer = FolderWriter(clean, out, recipe, tuple(corruptions), tuple(severities))
    _run(writer, os.cpu_count() or 1 if workers is None else workers)
    return out


def _run(writer: Writer, workers: int) -> None:
    blocks = writer.missing()
    # A DataLoader's workers have one thread each, and end when their parent does.
    loader = DataLoader(
        _Work(writer, blocks),
        batch_size=None,
        num_workers=min(workers, len(blocks)),
        generator=torch.Generator(),  # else it would draw from torch's own
    )
    images = sum(block.stop - block.start for block in blocks)
    with progress("Corrupted images", images) as advance:
        for block, error in zip(blocks, loader, strict=True):
            if error:
                raise ValueError(error)
            writer.note(block)
            advance(block.stop - block.start)


class _Work(Dataset[str]):
    """Item i writes block i, and is the error that this met."""

    def __init__(self, writer: Writer, blocks: list[Block]):
        self.writer = writer
        self.blocks = blocks

    def __len__(self) -> int:
        return len(self.blocks)

    def __getitem__(self, index: int) -> str:
        try:
            self.writer.write(self.blocks[index])
        except (OSError, ValueError) as error:
            return str(error)
        return ""


def _write_about(out: Path, clean: Images, layout: Layout, recipe: Recipe) -> None:
    """Say what this is; what was begun differently is not gone on with."""
    about: dict[str, Any] = {
        "made by": f"holdfast {holdfast.__version__}; not comparable with released files",
        "layout": layout,
        "table": recipe.table,
        "seed": recipe.seed,
        "frost": None if recipe.frost is None else str(recipe.frost),
        "images": len(clean),
        "shape": list(clean.image(0).shape),
        "labels": hashlib.sha256(clean.labels.tobytes()).hexdigest(),
    }
    path = out / ABOUT
    if path.is_file():
        try:
            old = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            old = {}
        changed = [name for name, value in about.items() if old.get(name) != value]
        if changed:
            what = "; ".join(f"{name} {old.get(name)!r}, now {about[name]!r}" for name in changed)
            raise ValueError(
                f"{out} was begun with other settings: {what}. Repeat those, or choose another "
                "folder."
            )
        return
    if out.is_dir() and any(out.iterdir()):
        raise ValueError(f"{out} holds other files: choose a new folder.")
    out.mkdir(parents=True, exist_ok=True)
    replace_whole(path, (json.dumps(about, indent=1) + "\n").encode())
