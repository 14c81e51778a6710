"""`holdfast data list`, `holdfast data get`, `holdfast data make`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from holdfast.data.corrupt.tables import CORRUPTIONS, HOLDOUT, SEVERITIES, Table
from holdfast.util.words import listed


@dataclass(frozen=True)
class List:
    """What can be had, how large it is, and whether it is here."""

    root: Path | None = None
    """Where sets lie. Default: $HOLDFAST_DATA, else the folder data."""

    def run(self) -> None:
        from rich.text import Text

        from holdfast.data.fetch.catalogue import CATALOGUE, find_root
        from holdfast.util.terminal import columns, show

        root = find_root(self.root)
        table = columns("name", "here", "download", "what")
        for name, entry in CATALOGUE.items():
            here = "yes" if entry.is_here(root) else "no"
            download = "embedded" if entry.embedded else _size(entry.size) or "by hand"
            table.add_row(name, here, download, Text(entry.what))
        show(table)


def _size(count: int) -> str:
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((f"{count / unit:.3g} {name}" for unit, name in units if count >= unit), "")


@dataclass(frozen=True)
class Get:
    """Download and unpack a set; repeat the command to go on with what was interrupted."""

    name: tyro.conf.Positional[str]
    """As `holdfast data list` says."""
    root: Path | None = None
    """Where sets lie. Default: $HOLDFAST_DATA, else the folder data."""
    mirror: tuple[str, ...] = ()
    """Addresses of folders with files of the same names, tried first."""
    keep: bool = False
    """Keep archives once they are unpacked."""

    def run(self) -> None:
        from holdfast.data.fetch.catalogue import find_root
        from holdfast.data.fetch.downloads import get

        for path in get(self.name, find_root(self.root), mirrors=self.mirror, keep=self.keep):
            print(path)


@dataclass(frozen=True)
class Make:
    """Write a corrupted copy of a clean set; repeat the command to go on after an interruption."""

    clean: tyro.conf.Positional[str]
    """cifar10, cifar100, imagenet, glyphs, a folder with a folder for each class, or an .npz file
    with `images` and `labels`."""
    out: tyro.conf.Positional[Path]
    """Folder to write into."""
    root: Path | None = None
    """Where sets lie. Default: $HOLDFAST_DATA, else the folder data."""
    layout: Literal["arrays", "folders"] | None = None
    """arrays (CIFAR-C's) or folders (ImageNet-C's). Default: like the clean set."""
    corruptions: tuple[str, ...] = CORRUPTIONS
    holdout: bool = False
    """The four corruptions that are kept apart for choosing settings, speckle_noise, gaussian_blur,
    spatter and saturate, in place of the fifteen; a copy that has those gets these besides."""
    severities: tuple[int, ...] = SEVERITIES
    table: Table | None = None
    """Whose parameters. Default: cifar for images up to 64×64, else imagenet."""
    seed: int = 0
    images: Path | None = None
    """A file that names some of a folder's images, one class/file a line."""
    classes: Path | None = None
    """A file that names a folder's classes in order, one a line."""
    size: int = 224
    """Side that images of a folder are cropped to."""
    frost: Path | None = None
    """Folder with the original frost textures; without it, holdfast's own."""
    workers: int | None = None
    """Processes. Default: one for each core."""

    def run(self) -> None:
        from holdfast.data.make import make
        from holdfast.data.readers.sets import open_clean

        if self.holdout and self.corruptions != CORRUPTIONS:
            raise ValueError(
                f"--holdout makes {listed(HOLDOUT)}, and --corruptions names others: leave out one "
                "of them, or name all that are wanted by --corruptions."
            )
        clean = open_clean(
            self.clean, self.root, images=self.images, classes=self.classes, size=self.size
        )
        made = make(
            clean,
            self.out,
            layout=self.layout,
            corruptions=HOLDOUT if self.holdout else self.corruptions,
            severities=self.severities,
            table=self.table,
            seed=self.seed,
            frost=self.frost,
            workers=self.workers,
        )
        print(made)


@dataclass(frozen=True)
class Data:
    """Sets of images: what there is, how to get it, and corrupted copies of your own."""

    task: List | Get | Make

    def run(self) -> None:
        self.task.run()
