"""How a stream goes from one process to another that shares its folder: who wants it asks whoever
has it, who saves it and hands it over."""

from __future__ import annotations

import os

from holdfast.fleet.folder import Folder, file_stem


class Sharing:
    """What a process that serves streams has to do with others that serve them too."""

    def __init__(self, folder: Folder):
        self._claims = folder.claims
        self._presence = folder.claims.presence

    def open(self) -> None:
        """From now on this process can be asked, and has to look at what it is `asked` for."""
        self._presence.open()

    def close(self) -> None:
        """All is saved: others may take what they want without asking."""
        self._presence.close()

    def asked(self) -> list[tuple[str, str]]:
        """Streams that others want, and who wants each."""
        found = []
        for path in sorted(self._presence.box(self._claims.me).glob("*")):
            asker, _, stream = path.read_text("utf-8", "surrogatepass").partition("\n")
            found.append((stream, asker))
        return found

    def give(self, stream: str, asker: str) -> None:
        """It is the other's from now on, if it was this one's."""
        stem = file_stem(stream)
        with self._claims.alone(stem):
            if self._claims.owner(stem) == self._claims.me:
                self._claims.give(stem, asker)
        (self._presence.box(self._claims.me) / stem).unlink(missing_ok=True)

    def fetch(self, stream: str) -> bool:
        """Whether this process may go on with a stream now. If not, another that has it was asked
        to hand it over: see again a little later."""
        stem = file_stem(stream)
        return not (self._claims.is_held(stem) and self._ask(stem, stream))

    def insist(self, stream: str) -> None:
        """Go on with it all the same, from what was saved last."""
        self._claims.insist(file_stem(stream))

    def _ask(self, stem: str, stream: str) -> bool:
        """Whether there still is somebody to be asked."""
        box = self._presence.box(self._claims.owner(stem))
        if (box / stem).exists():
            return True
        part = box.with_name(f"{self._claims.me}.part")
        part.write_text(f"{self._claims.me}\n{stream}", "utf-8", "surrogatepass")
        try:
            os.replace(part, box / stem)
        except FileNotFoundError:
            part.unlink()
            return False
        return True
