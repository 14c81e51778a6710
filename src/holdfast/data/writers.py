"""Corrupted sets being written, block by block, in CIFAR-C's or in ImageNet-C's layout.

A file that has its name is whole: it was written under another one first.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image
from torch import Tensor

from holdfast.data.corrupt.corrupted import Recipe
from holdfast.data.fetch.transfer import check_room
from holdfast.data.images import Images, as_bytes
from holdfast.data.readers.layouts import CLEAN, SEVERITIES, jpeg_name

QUALITY = 85
# A block's images take about this many bytes, and much more while they are corrupted.
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Block:
    """Some images of one corruption and severity; severity 0 leaves them clean."""

    name: str
    severity: int
    start: int
    stop: int


class Writer(Protocol):
    def missing(self) -> list[Block]:
        """What is still to be written."""

    def write(self, block: Block) -> None:
        """In some process, and twice if need be."""

    def note(self, block: Block) -> None:
        """In the one process that started the others, once the block is written."""


class ArrayWriter:
    """`<corruption>.npy`, filled under another name, beside a note of the blocks that are in it."""

    def __init__(self, clean: Images, out: Path, recipe: Recipe, corruptions: Sequence[str]):
        self.clean = clean
        self.out = out
        self.recipe = recipe
        channels, height, width = clean.image(0).shape
        self.image_shape = (height, width, channels)
        self.severities = {CLEAN: (0,), **dict.fromkeys(corruptions, SEVERITIES)}
        self.left: dict[str, int] = {}

    def missing(self) -> list[Block]:
        _save(self.out / "labels.npy", np.tile(self.clean.labels, len(SEVERITIES)))
        names = [name for name in self.severities if not self._path(name).is_file()]
        room = sum(self._size(name) for name in names if not self._part(name).is_file())
        check_room(self.out, room)
        blocks = []
        for name in names:
            done = self._begin(name)
            steps = _blocks(name, self.severities[name], len(self.clean), self.image_shape)
            todo = [block for block in steps if block not in done]
            self.left[name] = len(todo)
            blocks += todo
            self._finish_if_whole(name)
        return blocks

    def write(self, block: Block) -> None:
        images = _corrupted(self.clean, self.recipe, block, range(block.start, block.stop))
        bytes_ = images.permute(0, 2, 3, 1).contiguous().numpy().tobytes()
        row = max(block.severity - 1, 0) * len(self.clean) + block.start
        # Not through a map: a full disk is an error here, and the end of the process there.
        with open(self._part(block.name), "r+b") as file:
            file.seek(len(self._header(block.name)) + row * int(np.prod(self.image_shape)))
            file.write(bytes_)
            file.flush()
            os.fsync(file.fileno())

    def note(self, block: Block) -> None:
        with open(self._notes(block.name), "a", encoding="utf-8") as file:
            file.write(f"{block.severity} {block.start} {block.stop}\n")
        self.left[block.name] -= 1
        self._finish_if_whole(block.name)

    def _begin(self, name: str) -> set[Block]:
        """The blocks that an earlier run has noted; without any, an empty file."""
        part, header = self._part(name), self._header(name)
        if (
            part.is_file()
            and part.stat().st_size == self._size(name)
            and self._notes(name).is_file()
        ):
            # A last line that was cut short has no end, and is left out.
            lines = self._notes(name).read_text(encoding="utf-8").split("\n")[:-1]
            numbers = [[int(number) for number in line.split()] for line in lines]
            return {Block(name, *three) for three in numbers if len(three) == 3}
        self._notes(name).unlink(missing_ok=True)
        with open(part, "wb") as file:
            file.write(header)
            file.truncate(self._size(name))
        return set()

    def _finish_if_whole(self, name: str) -> None:
        if self.left[name] == 0:
            os.replace(self._part(name), self._path(name))
            self._notes(name).unlink(missing_ok=True)

    def _header(self, name: str) -> bytes:
        rows = len(self.severities[name]) * len(self.clean)
        file = io.BytesIO()
        entry = {"descr": "|u1", "fortran_order": False, "shape": (rows, *self.image_shape)}
        np.lib.format.write_array_header_1_0(file, entry)
        return file.getvalue()

    def _size(self, name: str) -> int:
        images = len(self.severities[name]) * len(self.clean)
        return len(self._header(name)) + images * int(np.prod(self.image_shape))

    def _path(self, name: str) -> Path:
        return self.out / f"{name}.npy"

    def _part(self, name: str) -> Path:
        return self.out / f".{name}.npy.part"

    def _notes(self, name: str) -> Path:
        return self.out / f".{name}.npy.notes"


class FolderWriter:
    """`<corruption>/<severity>/<class>/<file>`; an image that is there is done."""

    def __init__(
        self,
        clean: Images,
        out: Path,
        recipe: Recipe,
        corruptions: Sequence[str],
        severities: Sequence[int],
    ):
        self.clean = clean
        self.out = out
        self.recipe = recipe
        self.corruptions = corruptions
        self.severities = severities
        digits = len(str(clean.classes - 1))
        self.names = clean.names or tuple(f"{c:0{digits}d}" for c in range(clean.classes))

    def missing(self) -> list[Block]:
        # A class without images has a folder too: labels are places in the list of folders.
        for name in self.corruptions:
            for severity in self.severities:
                for label in self.names:
                    (self.out / name / str(severity) / label).mkdir(parents=True, exist_ok=True)
        shape = tuple(self.clean.image(0).shape)
        return [
            block
            for name in self.corruptions
            for block in _blocks(name, self.severities, len(self.clean), shape)
            if self._todo(block)
        ]

    def write(self, block: Block) -> None:
        todo = self._todo(block)
        images = _corrupted(self.clean, self.recipe, block, todo).permute(0, 2, 3, 1)
        for index, image in zip(todo, images, strict=True):
            picture = Image.fromarray(image.contiguous().numpy().squeeze())
            file = io.BytesIO()
            picture.save(file, "JPEG", quality=QUALITY, optimize=True)
            replace_whole(self._path(block, index), file.getvalue())

    def note(self, block: Block) -> None:
        """The images themselves say it."""

    def _todo(self, block: Block) -> list[int]:
        indices = range(block.start, block.stop)
        return [index for index in indices if not self._path(block, index).is_file()]

    def _path(self, block: Block, index: int) -> Path:
        name = self.clean.file_name(index)
        if name is None:
            name = f"{self.names[self.clean.labels[index]]}/{index:08d}.JPEG"
        return self.out / block.name / str(block.severity) / jpeg_name(name)


def _blocks(
    name: str, severities: Sequence[int], count: int, shape: tuple[int, ...]
) -> Iterator[Block]:
    step = max(1, BLOCK_BYTES // int(np.prod(shape)))
    for severity in severities:
        for start in range(0, count, step):
            yield Block(name, severity, start, min(start + step, count))


def _corrupted(clean: Images, recipe: Recipe, block: Block, indices: Sequence[int]) -> Tensor:
    images = as_bytes(clean.raw(indices))
    if block.severity == 0:
        return images
    return recipe.apply(images, block.name, block.severity, indices)


def _save(path: Path, values: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> None:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    replace_whole(path, file.getvalue())


def replace_whole(path: Path, contents: bytes) -> None:
    """Write beside the target, then rename: the file is whole or not there."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(contents)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
