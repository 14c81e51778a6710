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

from holdfast.fleet.presence import Presence

SUFFIX = ".owner"
# Of different streams, some share a lock: few files, and hardly anybody waits.
LOCKS = 16


class Claims:
    """A file beside each stream's state says how often it was taken, and by whom the last time."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.me = uuid.uuid4().hex
        self.presence = Presence(folder, self.me)
        # Streams that are taken though another process has them.
        self._insisted: set[str] = set()
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
        self.give(stem, self.me)
        self._taken[stem] = self._said(stem) or ""
        self._insisted.discard(stem)

    def give(self, stem: str, owner: str) -> None:
        """It belongs to that process from now on, which still has to take it; `alone` with it."""
        text = f"{self.generation(stem) + 1} {owner}"
        path = self._file(stem)
        part = path.with_name(f".{path.name}.part")
        part.write_text(text)
        os.replace(part, path)

    def owns(self, stem: str) -> bool:
        """Whether it was taken here, and by nobody since."""
        return stem in self._taken and self._said(stem) == self._taken[stem]

    def owner(self, stem: str) -> str:
        """Whom it belongs to; empty: nobody."""
        return (self._said(stem) or "").partition(" ")[2]

    def is_held(self, stem: str) -> bool:
        """Whether it belongs to another process, which is there to be asked for it."""
        owner = self.owner(stem)
        others = owner not in ("", self.me) and stem not in self._insisted
        return others and self.presence.is_there(owner)

    def insist(self, stem: str) -> None:
        """It may be taken, though another process has it."""
        self._insisted.add(stem)

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
