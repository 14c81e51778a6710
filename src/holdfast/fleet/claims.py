"""Whom a stream belongs to, where several processes share a folder: to the one that took it last.

Whoever writes a stream without owning it is refused, so that it never goes on in two ways.
"""

from __future__ import annotations

import os
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

SUFFIX = ".owner"
# Of different streams, some share a lock: few files, and hardly anybody waits.
LOCKS = 16


class Claims:
    """A file beside each stream's state says how often it was taken, and by whom the last time."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._me = uuid.uuid4().hex
        # What the file of a stream said when it was taken here.
        self._taken: dict[str, str] = {}

    @contextmanager
    def alone(self, stem: str) -> Iterator[None]:
        """Nobody takes or writes the stream meanwhile; a process that is killed lets go."""
        number = zlib.crc32(stem.encode()) % LOCKS
        with FileLock(self.folder / f".lock{number}"):
            yield

    def take(self, stem: str) -> None:
        """Own it from now on; `alone` with it."""
        text = f"{self.generation(stem) + 1} {self._me}"
        path = self._file(stem)
        part = path.with_name(f".{path.name}.part")
        part.write_text(text)
        os.replace(part, path)
        self._taken[stem] = text

    def owns(self, stem: str) -> bool:
        """Whether it was taken here, and by nobody since."""
        return stem in self._taken and self._said(stem) == self._taken[stem]

    def is_free(self, stem: str) -> bool:
        """Whether nobody has ever taken it."""
        return stem not in self._taken and self._said(stem) is None

    def generation(self, stem: str) -> int:
        """How often it was taken."""
        number = (self._said(stem) or "").partition(" ")[0]
        return int(number) if number.isdecimal() else 0

    def forget(self, stem: str) -> None:
        self._file(stem).unlink(missing_ok=True)
        self._taken.pop(stem, None)

    def _said(self, stem: str) -> str | None:
        try:
            return self._file(stem).read_text()
        except FileNotFoundError:
            return None

    def _file(self, stem: str) -> Path:
        return self.folder / f"{stem}{SUFFIX}"
