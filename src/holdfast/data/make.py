"""`holdfast data make`: a corrupted copy of a clean set, in CIFAR-C's or in ImageNet-C's layout.

Work is cut into blocks, spread over processes. What an image becomes depends on seed, corruption,
severity and index alone, so a copy that was interrupted and finished later is the same, bit for
bit, as one made in one go. A file that has its name is whole: it was written under another one
first.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import holdfast
from holdfast.data.corrupt.tables import CORRUPTIONS, Table
from holdfast.data.fetch.transfer import check_room
from holdfast.data.images import Images, as_bytes
from holdfast.data.pools import Recipe, find_table
from holdfast.data.readers.layouts import CLEAN, SEVERITIES, check_severity, jpeg_name
from holdfast.data.readers.sets import check_corruptions
from holdfast.util.progress import progress
from holdfast.util.settings import whole

Layout = Literal["arrays", "folders"]
# Says how a copy was made; released sets have no such file.
ABOUT = "holdfast.json"
QUALITY = 85
# A block's images take about this many bytes, and much more while they are corrupted.
BLOCK_BYTES = 1 << 20


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
    out = Path(out)
    frost = None if frost is None else Path(frost)
    recipe = Recipe(table or find_table(clean), whole(seed, "seed"), frost)
    layout = layout or ("arrays" if clean.file_name(0) is None else "folders")
    if layout == "arrays" and sorted(severities) != list(SEVERITIES):
        raise ValueError(
            f"Arrays hold all five severities, not only {list(severities)}: choose "
            "layout='folders', or have the clean set corrupted as it is read."
        )
    _write_about(out, clean, layout, recipe)
    kind = ArrayWriter if layout == "arrays" else FolderWriter
    writer = kind(clean, out, recipe, dict.fromkeys(corruptions, tuple(severities)))
    blocks = writer.missing()
    workers = os.cpu_count() or 1 if workers is None else workers
    # A DataLoader's workers have one thread each, and end when their parent does.
    loader = DataLoader(
        _Work(writer, blocks),
        batch_size=None,
        num_workers=min(workers, len(blocks)),
        generator=torch.Generator(),  # else it would draw from torch's own
    )
    with progress("Corrupted images", sum(len(block.indices) for block in blocks)) as advance:
        for block, error in zip(blocks, loader, strict=True):
            if error:
                raise ValueError(error)
            writer.note(block)
            advance(len(block.indices))
    return out


def _write_about(out: Path, clean: Images, layout: Layout, recipe: Recipe) -> None:
    """Write down how the copy is made; one that was begun differently is an error."""
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
            differences = "; ".join(
                f"{name} {old.get(name)!r}, now {about[name]!r}" for name in changed
            )
            raise ValueError(
                f"{out} was begun with other settings: {differences}. Repeat those, or choose "
                "another folder."
            )
        return
    if out.is_dir() and any(out.iterdir()):
        raise ValueError(f"{out} holds other files: choose a new folder.")
    out.mkdir(parents=True, exist_ok=True)
    _replace_whole(path, (json.dumps(about, indent=1) + "\n").encode())


@dataclass(frozen=True)
class Block:
    """Some images of one corruption and severity; severity 0 leaves them clean."""

    name: str
    severity: int
    start: int
    stop: int

    @property
    def indices(self) -> range:
        return range(self.start, self.stop)


class Writer(ABC):
    """A corrupted set being written; `severities` are those of each domain."""

    def __init__(
        self, clean: Images, out: Path, recipe: Recipe, severities: dict[str, tuple[int, ...]]
    ):
        self.clean = clean
        self.out = out
        self.recipe = recipe
        self.severities = severities
        channels, height, width = clean.image(0).shape
        self.image_shape = (height, width, channels)
        self.image_bytes = channels * height * width

    @abstractmethod
    def missing(self) -> list[Block]:
        """What is still to be written."""

    @abstractmethod
    def write(self, block: Block) -> None:
        """Called in any process, and perhaps twice for a block."""

    def note(self, block: Block) -> None:  # noqa: B027
        """Called in the parent process, once the block is written."""

    def blocks(self, name: str) -> list[Block]:
        count, step = len(self.clean), max(1, BLOCK_BYTES // self.image_bytes)
        return [
            Block(name, severity, start, min(start + step, count))
            for severity in self.severities[name]
            for start in range(0, count, step)
        ]

    def corrupted(self, block: Block, indices: Sequence[int]) -> Tensor:
        """Bytes, channels last."""
        images = as_bytes(self.clean.raw(indices))
        if block.severity:
            images = self.recipe.apply(images, block.name, block.severity, indices)
        return images.permute(0, 2, 3, 1).contiguous()


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


class ArrayWriter(Writer):
    """`<corruption>.npy`, filled under another name, beside a note of the blocks that are in it."""

    def missing(self) -> list[Block]:
        labels = io.BytesIO()
        np.save(labels, np.tile(self.clean.labels, len(SEVERITIES)), allow_pickle=False)
        _replace_whole(self.out / "labels.npy", labels.getvalue())
        self.severities = {CLEAN: (0,), **self.severities}
        self.left: dict[str, int] = {}
        names = [name for name in self.severities if not self._path(name).is_file()]
        room = sum(self._size(name) for name in names if not self._part(name).is_file())
        check_room(self.out, room)
        blocks = []
        for name in names:
            done = self._begin(name)
            todo = [block for block in self.blocks(name) if block not in done]
            self.left[name] = len(todo)
            blocks += todo
            self._finish_if_whole(name)
        return blocks

    def write(self, block: Block) -> None:
        images = self.corrupted(block, block.indices).numpy().tobytes()
        row = max(block.severity - 1, 0) * len(self.clean) + block.start
        # Not through a map: a full disk is an error here, and the end of the process there.
        with open(self._part(block.name), "r+b") as file:
            file.seek(len(self._header(block.name)) + row * self.image_bytes)
            file.write(images)
            file.flush()
            os.fsync(file.fileno())

    def note(self, block: Block) -> None:
        with open(self._notes(block.name), "a", encoding="utf-8") as file:
            file.write(f"{block.severity} {block.start} {block.stop}\n")
        self.left[block.name] -= 1
        self._finish_if_whole(block.name)

    def _begin(self, name: str) -> set[Block]:
        """The blocks that an earlier run has noted; without any, an empty file."""
        part, notes, size = self._part(name), self._notes(name), self._size(name)
        if part.is_file() and part.stat().st_size == size and notes.is_file():
            # A last line that was cut short has no end, and is left out.
            lines = notes.read_text(encoding="utf-8").split("\n")[:-1]
            numbers = [[int(number) for number in line.split()] for line in lines]
            return {Block(name, *three) for three in numbers if len(three) == 3}
        notes.unlink(missing_ok=True)
        with open(part, "wb") as file:
            file.write(self._header(name))
            file.truncate(size)
        return set()

    def _finish_if_whole(self, name: str) -> None:
        if self.left[name] == 0:
            os.replace(self._part(name), self._path(name))
            self._notes(name).unlink(missing_ok=True)

    def _rows(self, name: str) -> int:
        return len(self.severities[name]) * len(self.clean)

    def _header(self, name: str) -> bytes:
        file = io.BytesIO()
        shape = (self._rows(name), *self.image_shape)
        entry = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, entry)
        return file.getvalue()

    def _size(self, name: str) -> int:
        return len(self._header(name)) + self._rows(name) * self.image_bytes

    def _path(self, name: str) -> Path:
        return self.out / f"{name}.npy"

    def _part(self, name: str) -> Path:
        return self.out / f".{name}.npy.part"

    def _notes(self, name: str) -> Path:
        return self.out / f".{name}.npy.notes"


class FolderWriter(Writer):
    """`<corruption>/<severity>/<class>/<file>`; an image that is there is done."""

    def missing(self) -> list[Block]:
        digits = len(str(self.clean.classes - 1))
        numbers = tuple(f"{label:0{digits}d}" for label in range(self.clean.classes))
        self.names = self.clean.names or numbers
        # A class without images has a folder too: labels are places in the list of folders.
        for name, severities in self.severities.items():
            for severity in severities:
                for label in self.names:
                    (self.out / name / str(severity) / label).mkdir(parents=True, exist_ok=True)
        return [b for name in self.severities for b in self.blocks(name) if self._todo(b)]

    def write(self, block: Block) -> None:
        todo = self._todo(block)
        for index, image in zip(todo, self.corrupted(block, todo), strict=True):
            file = io.BytesIO()
            picture = Image.fromarray(image.numpy().squeeze())
            picture.save(file, "JPEG", quality=QUALITY, optimize=True)
            _replace_whole(self._path(block, index), file.getvalue())

    def _todo(self, block: Block) -> list[int]:
        return [index for index in block.indices if not self._path(block, index).is_file()]

    def _path(self, block: Block, index: int) -> Path:
        name = self.clean.file_name(index)
        if name is None:
            name = f"{self.names[self.clean.labels[index]]}/{index:08d}.JPEG"
        return self.out / block.name / str(block.severity) / jpeg_name(name)


def _replace_whole(path: Path, contents: bytes) -> None:
    """Write beside the target, then rename: the file is whole or not there."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(contents)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
