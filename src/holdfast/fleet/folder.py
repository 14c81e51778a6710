"""State files of streams, one each, in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from holdfast.fleet.claims import Claims
from holdfast.util import files

KIND = "the state of a stream in a fleet"
SUFFIX = ".safetensors"
DAMAGED = ".damaged"
# With what is put around a name while its file is written, file systems take 255 bytes.
LONGEST = 200

HEADER: Mapping[str, files.Types] = {
    "stream": str,
    "model": str,
    "method": str,
    "fresh": str,
    "generation": int,
    "notes": dict,
}


def file_stem(stream: str) -> str:
    """A file name for any stream: different for different ones, also where capitals and small
    letters are one, and never a hidden file or another folder."""
    plain = re.sub(rb"[^a-z0-9_-]", lambda found: b"%%%02X" % found[0][0], _encoded(stream))
    if len(plain) <= LONGEST:
        return plain.decode()
    return f"{plain[: LONGEST // 2].decode()}={files.text_hash(repr(stream))}"


def _encoded(stream: str) -> bytes:
    return stream.encode("utf-8", "surrogatepass")


def _decoded(stem: str) -> str:
    plain = re.sub(rb"%([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), stem.encode())
    return plain.decode("utf-8", "surrogatepass")


class StateError(ValueError):
    """A stream's saved state cannot be gone on from, or written: it is damaged, another fleet's, or
    owned by another process."""


class OtherFleetError(StateError):
    """A state that is whole, and not one of this fleet."""


class TakenOverError(StateError):
    """A stream that another process has gone on with."""


class HeldError(StateError):
    """A stream that another process serves, which can be asked for it."""


class Folder:
    """The state files of one fleet's streams. Where several processes share the folder, a stream
    belongs to the one that took it last.

    identity: of what a state is one: a hash of the model, the method, a hash of the first state.
    """

    def __init__(self, path: str | Path, identity: Mapping[str, str]):
        self.path = Path(path)
        self.identity = identity
        self.path.mkdir(parents=True, exist_ok=True)
        self.claims = Claims(self.path)

    def file(self, stream: str) -> Path:
        return self.path / f"{file_stem(stream)}{SUFFIX}"

    def __contains__(self, stream: str) -> bool:
        return self.file(stream).is_file()

    def streams(self) -> list[str]:
        """All that have a file; of a long name, the file knows the rest."""
        found = []
        for path in sorted(self.path.glob(f"*{SUFFIX}")):
            stem = path.name.removesuffix(SUFFIX)
            if path.name.startswith("."):
                continue
            found.append(_decoded(stem) if "=" not in stem else _named_inside(path))
        return found

    def is_taken(self, stream: str) -> bool:
        """Whether another process has taken it."""
        return not self.claims.owns(file_stem(stream))

    def write(self, stream: str, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
        """Save a stream, if it is one's own."""
        stem = file_stem(stream)
        with self.claims.alone(stem):
            if not self.claims.owns(stem):
                raise TakenOverError(
                    f"The stream {stream!r} was taken over by another process, which goes on with "
                    f"the state that was saved last in {self.path}. What this one has learnt of it "
                    "since is not written: send each stream to one process."
                )
            own = {"stream": stream, "generation": self.claims.generation(stem)}
            files.write(self.file(stream), KIND, {**self.identity, **own, "notes": notes}, tensors)

    def take(self, stream: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and notes of a stream, which from now on is one's own."""
        stem = file_stem(stream)
        with self.claims.alone(stem):
            self._check_held(stream, stem)
            found = self.read(stream)
            if not self.claims.owns(stem):
                self.claims.take(stem)
        return found

    def read(self, stream: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and notes of a stream. Another fleet's are refused."""
        path = self.file(stream)
        header, tensors = files.read(path, KIND)
        files.check_header(path, header, HEADER)
        if header["stream"] != stream:
            raise ValueError(f"{path} is the state of {header['stream']!r}, not of {stream!r}")
        for what, advice in {
            "model": "another model: take the model it was saved with",
            "method": f"another method, {header['method']}: take that one",
            "fresh": "another beginning (seed, window, guard or version): take those",
        }.items():
            if header[what] != self.identity[what]:
                raise OtherFleetError(
                    f"{path} was saved by a fleet of {advice}, or give this fleet a folder of its "
                    "own. The file is as it was."
                )
        return tensors, header["notes"]

    def begin(self, stream: str) -> bool:
        """A stream without a file begins anew here, whoever had it before. False: another process
        has just written one."""
        stem = file_stem(stream)
        with self.claims.alone(stem):
            if stream in self:
                return False
            self._check_held(stream, stem)
            self.claims.take(stem)
        return True

    def _check_held(self, stream: str, stem: str) -> None:
        if self.claims.is_held(stem):
            raise HeldError(
                f"The stream {stream!r} is served by another process: ask that one, or end it."
            )

    def take_back(self, stream: str) -> None:
        """What was begun, and came to nothing."""
        stem = file_stem(stream)
        with self.claims.alone(stem):
            if self.claims.owns(stem) and stream not in self:
                self.claims.forget(stem)

    def set_aside(self, stream: str) -> Path:
        """A file that cannot be read makes room, and is kept."""
        target = self._aside(stream, len(self.aside(stream)))
        os.replace(self.file(stream), target)
        return target

    def aside(self, stream: str) -> list[Path]:
        """Files of a stream that could not be read."""
        found: list[Path] = []
        while (path := self._aside(stream, len(found))).exists():
            found.append(path)
        return found

    def _aside(self, stream: str, number: int) -> Path:
        path = self.file(stream)
        return path.with_name(f"{path.name}{DAMAGED}{number}")

    def remove(self, stream: str) -> None:
        stem = file_stem(stream)
        with self.claims.alone(stem):
            for path in [self.file(stream), *self.aside(stream)]:
                path.unlink(missing_ok=True)
            self.claims.forget(stem)


def _named_inside(path: Path) -> str:
    header, _ = files.read(path, KIND)
    return str(header.get("stream"))
