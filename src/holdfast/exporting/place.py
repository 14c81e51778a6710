"""Files that come to lie in their place whole, and only once they are good."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def check_free(paths: Sequence[Path], overwrite: bool) -> None:
    for path in paths:
        if path.is_dir():
            raise ValueError(f"{path} is a folder: name a file.")
        if path.exists() and not overwrite:
            raise ValueError(
                f"There is a file {path} already: name another, or have it replaced "
                "(overwrite=True, --force on the command line)."
            )


@contextmanager
def trial(path: Path) -> Iterator[Path]:
    """The same name in a folder beside the path, which is gone afterwards."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield folder / path.name
    finally:
        shutil.rmtree(folder)


def put(made: Path, path: Path, beside: Sequence[Path]) -> tuple[Path, ...]:
    """Move a file, and those beside it, to where they belong. One file is replaced at once; where
    there are several, the first is gone in between, so that no two ever lie there that do not
    belong together."""
    others = [one for one in beside if made.with_name(one.name).exists()]
    for file in made.parent.iterdir():
        with open(file, "rb") as written:
            os.fsync(written.fileno())
    stale = [one for one in beside if one.exists()]
    if others or stale:
        for old in (path, *stale):
            old.unlink(missing_ok=True)
    for file in (*others, path):
        os.replace(made.with_name(file.name), file)
    return (path, *others)
