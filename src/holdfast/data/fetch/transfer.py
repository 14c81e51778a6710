"""One file over HTTP, carried on where it stopped, and refused where it is not what it should be.

pooch checks sums and puts files in their place; what it lacks is a download that goes on, so it is
given this one.
"""

from __future__ import annotations

import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.util.progress import progress

CHUNK = 1 << 20
TIMEOUT = 60.0
ATTEMPTS = 4
MB = 1_000_000


class NotTheFileError(ValueError):
    """A server sent something else: an error page, a login page."""


class NoSpaceError(OSError):
    """The disk has no room."""


@dataclass
class Transfer:
    """What pooch calls to download: into a `.part` file first, which the next attempt goes on
    with, here or in another process."""

    part: Path
    room: float = 1.0
    """Free space needed, as a multiple of the file: 2 where it will be unpacked beside itself."""

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> None:
        begun = most = self._received()
        fruitless = 0
        while True:
            try:
                self._go_on(url)
                break
            except (NotTheFileError, NoSpaceError, urllib.error.HTTPError):
                raise
            except (OSError, http.client.HTTPException):
                # A connection that broke is worth another one as long as they bring something.
                received = self._received()
                fruitless, most = 0 if received > most else fruitless + 1, max(most, received)
                if fruitless == ATTEMPTS or received == begun:
                    raise
                time.sleep(2.0**fruitless)
        self._hand_over(Path(output_file))

    def _hand_over(self, target: Path) -> None:
        """As a second name of the part, which stays until pooch has checked its sum."""
        for leftover in target.parent.glob("tmp*"):  # from processes that were killed meanwhile
            if leftover.is_file() and leftover.samefile(self.part):
                leftover.unlink()
        target.unlink(missing_ok=True)
        try:
            os.link(self.part, target)
        except OSError:  # a file system without links
            os.replace(self.part, target)

    def _received(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _go_on(self, url: str) -> None:
        """Ask for what is missing; a server that knows no ranges sends it all again."""
        received = self._received()
        # Unpacked on the way, a file would not have the length that the server names.
        headers = {"Accept-Encoding": "identity", "User-Agent": "holdfast"}
        if received:
            headers["Range"] = f"bytes={received}-"
        try:
            answer = urllib.request.urlopen(
                urllib.request.Request(url, headers=headers), timeout=TIMEOUT
            )
        except urllib.error.HTTPError as error:
            if error.code != 416:
                raise
            if _length(error.headers.get("Content-Range")) == received:
                return  # it was all here
            self.part.unlink()  # longer than the file: not a part of it
            raise OSError("the part on disk is no part of this file") from None
        except ValueError as error:
            raise OSError(f"this is no address: {error}") from None
        with answer:
            self._take(answer, received)

    def _take(self, answer: Any, received: int) -> None:
        if answer.status == 206:
            if not str(answer.headers.get("Content-Range")).startswith(f"bytes {received}-"):
                self.part.unlink()
                raise OSError("the server answered with another range")
            total = _length(answer.headers.get("Content-Range"))
        else:
            received = 0
            length = answer.headers.get("Content-Length")
            total = int(length) if str(length).isdigit() else None
        if total is not None:
            check_room(self.part.parent, int(self.room * total) - received)
        first = answer.read(CHUNK)
        if not received:
            check_start(self.part.name.removesuffix(".part"), first, answer.headers)
        with (
            open(self.part, "ab" if received else "wb") as file,
            progress(f"{self.part.stem}, MB", total and total // MB) as advance,
        ):
            done = received
            advance(done // MB)
            while first:
                file.write(first)
                advance((done + len(first)) // MB - done // MB)
                done += len(first)
                first = answer.read(CHUNK)
        if total is not None and done < total:
            raise OSError(f"the connection broke after {done} of {total} bytes")


def _length(content_range: str | None) -> int | None:
    """The whole length in `bytes 5-9/10` or `bytes */10`."""
    tail = (content_range or "").rpartition("/")[2]
    return int(tail) if tail.isdigit() else None


def check_start(name: str, first: bytes, headers: Any) -> None:
    """The first bytes are those of such a file; a web page is not taken for one."""
    beginning = first[:512].lstrip().lower()
    if beginning.startswith((b"<!doctype", b"<html", b"<?xml", b"{")):
        kind = headers.get("Content-Type") or "unknown type"
        raise NotTheFileError(f"the server sent a page ({kind}), not {name}")
    good = {
        ".gz": first.startswith(b"\x1f\x8b"),
        ".tar": first[257:262] == b"ustar" or len(first) < 262,
    }.get(Path(name).suffix, True)
    if not good:
        raise NotTheFileError(f"the server sent something that does not start like {name}")


def check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise NoSpaceError(
            f"{folder} has {free / 1e9:.3g} GB free, but {needed / 1e9:.3g} GB are needed: make "
            "room, or choose another folder."
        )
