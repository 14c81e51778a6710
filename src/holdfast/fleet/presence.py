"""Which processes that share a folder can be asked for a stream: each holds a lock, which ends with
it however it ends."""

from __future__ import annotations

import shutil
from pathlib import Path

from filelock import FileLock, Timeout

FOLDER = ".sharing"


class Presence:
    """me: the name of this process among them."""

    def __init__(self, folder: Path, me: str):
        self.me = me
        self._folder = folder / FOLDER
        self._lock = FileLock(self._lock_of(me), thread_local=False)

    def open(self) -> None:
        self.box(self.me).mkdir(parents=True, exist_ok=True)
        self._lock.acquire()

    def close(self) -> None:
        self._lock.release()
        self._clear(self.me)

    def is_there(self, process: str) -> bool:
        """Whether a process is there to be asked."""
        if process == self.me or not self._lock_of(process).exists():
            return process == self.me
        try:
            with FileLock(self._lock_of(process), timeout=0):
                pass
        except Timeout:
            return True
        self._clear(process)  # it has ended without a word
        return False

    def box(self, process: str) -> Path:
        """A folder for what others ask of a process."""
        return self._folder / process

    def _lock_of(self, process: str) -> Path:
        return self._folder / f"{process}.lock"

    def _clear(self, process: str) -> None:
        shutil.rmtree(self.box(process), ignore_errors=True)
        self._lock_of(process).unlink(missing_ok=True)
