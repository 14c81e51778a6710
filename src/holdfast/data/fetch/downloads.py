"""`holdfast data get`: known files, checked, unpacked, and carried on where they stopped."""

from __future__ import annotations

import http.client
import logging
import os
import platform
import shutil
import tarfile
import urllib.error
from collections.abc import Sequence
from pathlib import Path

import pooch  # type: ignore[import-untyped]

from holdfast.data.fetch.catalogue import Remote, find_entry
from holdfast.data.fetch.transfer import NoSpaceError, NotTheFileError, Transfer, check_room
from holdfast.util.progress import progress
from holdfast.util.words import listed

# An archive and what it unpacks to lie side by side for a while. Images hardly compress.
ROOM = 2.2


def get(name: str, root: Path, *, mirrors: Sequence[str] = (), keep: bool = False) -> list[Path]:
    """Download what the catalogue calls `name` and unpack it below `root`; the paths it makes.

    `mirrors` are addresses of folders that hold files of the same names, tried first. An archive is
    deleted once it is unpacked, unless `keep`. What is there already is left alone.
    """
    entry = find_entry(name)
    if entry.embedded:
        raise ValueError(
            f"{name} is a part of holdfast, and needs no download: open it by its name."
        )
    if not entry.files:
        raise ValueError(
            f"{name} has to be got by hand: {entry.by_hand}. Put it at {root / entry.place}."
        )
    if not hasattr(tarfile, "data_filter"):
        raise ValueError(
            f"Python {platform.python_version()} cannot keep an archive from writing outside its "
            "folder: use Python 3.11.4, 3.12 or newer."
        )
    for mirror in mirrors:
        if not mirror.startswith(("http://", "https://")):
            raise ValueError(f"A mirror starts with http:// or https://, unlike {mirror!r}.")
    root.mkdir(parents=True, exist_ok=True)
    for remote in entry.files:
        if not remote.is_here(root):
            path = fetch(name, remote, root, mirrors)
            if remote.is_archive:
                unpack(remote, path, root)
                if not keep:
                    path.unlink()
    return [root / made for remote in entry.files for made in remote.makes]


def fetch(name: str, remote: Remote, root: Path, mirrors: Sequence[str] = ()) -> Path:
    """The file itself, with the right checksum, from the first address that has it."""
    addresses = [*(f"{mirror.rstrip('/')}/{remote.name}" for mirror in mirrors), *remote.addresses]
    part = root / f"{remote.name}.part"
    pooch.get_logger().setLevel(logging.ERROR)
    failures = []
    while addresses:
        address, was_part = addresses.pop(0), part.exists()
        try:
            path = pooch.retrieve(
                address,
                f"md5:{remote.md5}",
                fname=remote.name,
                path=root,
                downloader=Transfer(part, ROOM if remote.is_archive else 1.0),
            )
            part.unlink(missing_ok=True)
            return Path(path)
        except NoSpaceError:
            raise
        except urllib.error.HTTPError as error:
            failures.append(f"{address}: {error.code} {error.reason}")
        except (OSError, http.client.HTTPException, NotTheFileError) as error:
            # No network, a broken one, no web server, a page.
            failures.append(f"{address}: {getattr(error, 'reason', None) or error}")
        except ValueError as error:  # another checksum
            part.unlink(missing_ok=True)
            if was_part:
                addresses.insert(0, address)  # the part was none of this file: all of it, then
            else:
                failures.append(f"{address}: {error}")
    raise OSError(
        f"{remote.name} could not be downloaded. {'; '.join(failures)}. Where there is no network, "
        f"put the file, with md5 {remote.md5}, at {root / remote.name}, and repeat: holdfast data "
        f"get {name} --root {root}"
    )


def unpack(remote: Remote, path: Path, root: Path) -> None:
    """Into another folder first, so that what is in place is always whole."""
    aside = root / f".{remote.name}.unpacking"
    shutil.rmtree(aside, ignore_errors=True)
    check_room(root, path.stat().st_size)
    try:
        with tarfile.open(path) as archive, progress(f"Unpacking {remote.name}", None) as advance:

            def checked(member: tarfile.TarInfo, folder: str) -> tarfile.TarInfo | None:
                advance(1)
                return tarfile.data_filter(member, folder)  # refuses paths that lead elsewhere

            archive.extractall(aside, filter=checked)
        for made in remote.makes:
            _move(aside, Path(made).name, root / made, path)
    except (tarfile.TarError, EOFError) as error:
        raise ValueError(f"{path} cannot be unpacked: {error}. Delete it, and repeat.") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _move(aside: Path, name: str, target: Path, archive: Path) -> None:
    """Some archives hold their folders inside another one."""
    folders = [folder for folder in (aside / name, *aside.glob(f"*/{name}")) if folder.exists()]
    if not folders:
        inside = sorted(path.name for path in aside.iterdir())
        raise ValueError(f"{archive} holds no {name}; it holds {listed(inside)}.")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(folders[0], target)
