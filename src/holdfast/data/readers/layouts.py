"""Corrupted sets on disk, in the two published layouts.

CIFAR-C: `<corruption>.npy`, uint8, the images five times in severities 1 to 5, and `labels.npy`.
ImageNet-C: `<corruption>/<severity>/<class>/<file>`, JPEG, 224×224.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from holdfast.data.corrupt.tables import EVERY
from holdfast.data.corrupt.tables import SEVERITIES as SEVERITIES
from holdfast.data.images import Images, Lazy, check_labels
from holdfast.data.readers.arrays import ArrayImages, check_images, read_array, read_header
from holdfast.data.readers.folders import ENDINGS, FolderImages, list_files, read_folder
from holdfast.util.settings import whole
from holdfast.util.words import listed

CLEAN = "original"
# ImageNet-C's archives; some people keep their folders around what they hold.
GROUPS = ("noise", "blur", "weather", "digital", "extra")


def check_severity(severity: int) -> int:
    return whole(severity, "severity", SEVERITIES[0], SEVERITIES[-1])


def is_arrays(folder: Path) -> bool:
    """CIFAR-C's layout, or what is left of it."""
    return any((folder / f"{name}.npy").is_file() for name in ("labels", *EVERY))


def read_arrays(
    folder: Path,
    corruptions: Sequence[str],
    severity: int,
    *,
    classes: int | None = None,
    image_shape: tuple[int, ...] | None = None,
) -> dict[str, Images]:
    """One severity of a set in CIFAR-C's layout, and its `original.npy` if it has one."""
    path = folder / "labels.npy"
    labels = check_labels(np.asarray(read_array(path)), path, classes)
    count = len(labels) // len(SEVERITIES)
    if not np.array_equal(np.tile(labels[:count], len(SEVERITIES)), labels):
        raise ValueError(
            f"{path} has {len(labels)} labels that do not repeat five times; expected those of "
            "the clean set, once for each severity."
        )
    _check_none_missing(folder, [f"{name}.npy" for name in corruptions])
    names = [*corruptions, *([CLEAN] if (folder / f"{CLEAN}.npy").is_file() else [])]
    domains: dict[str, Images] = {}
    for name in names:
        path = folder / f"{name}.npy"
        header = read_header(path)
        image_shape = header.shape[1:] if image_shape is None else image_shape
        expected = (count if name == CLEAN else len(labels), *image_shape)
        if header.dtype != np.uint8 or header.shape != expected:
            raise ValueError(
                f"{path} is {header.dtype} of shape {header.shape}; expected uint8 of shape "
                f"{expected}, one image for each label in labels.npy."
            )
        if not check_images(path, header):
            raise ValueError(
                f"{path}: expected channels last, as in CIFAR-C; found {header.shape}."
            )
        domains[name] = ArrayImages(
            Lazy(partial(read_array, path)),
            labels[:count],
            classes,
            severity=None if name == CLEAN else severity,
        )
    return domains


def read_folders(
    folder: Path,
    corruptions: Sequence[str],
    severity: int,
    *,
    classes: Sequence[str] | None = None,
    images: str | Path | None = None,
    size: int | None = 224,
) -> dict[str, FolderImages]:
    """One severity of a set in ImageNet-C's layout; `images` names some of them."""
    homes = {name: find_corruption(folder, name) or folder / name for name in corruptions}
    roots = {name: home / str(severity) for name, home in homes.items()}
    missing = [str(root.relative_to(folder)) for root in roots.values() if not root.is_dir()]
    _check_none_missing(folder, missing)
    first = next(iter(roots.values()))
    like = read_folder(first, classes=classes, images=images, size=size, crop=False)
    files = like.file_names()
    for root in roots.values():
        if images is not None:
            like.elsewhere(root).check_there()
            continue
        names = list_files(root, like.names)
        if names != files:
            differing = sorted(set(names) ^ set(files))
            raise ValueError(
                f"{root} holds {len(names)} images, other domains {len(files)}; expected the same "
                f"ones in each. They differ in {listed(differing, 3)}."
            )
    return {name: like.elsewhere(root) for name, root in roots.items()}


def jpeg_name(file: str) -> str:
    """What a corrupted copy of an image is called: a.jpg stays, a.png and a.bmp are two images."""
    return file if file.lower().endswith((".jpg", ".jpeg")) else f"{file}.JPEG"


def original_name(file: str) -> str:
    shorter = file.removesuffix(".JPEG")
    return shorter if shorter.lower().endswith(ENDINGS) else file


def find_corruption(folder: Path, name: str) -> Path | None:
    """Its folder, known by the severities inside: a class may be called fog, or snow."""
    folders = (folder / name, *(folder / group / name for group in GROUPS))
    severities = [str(severity) for severity in SEVERITIES]
    return next((path for path in folders if any((path / s).is_dir() for s in severities)), None)


def _check_none_missing(folder: Path, names: Sequence[str]) -> None:
    missing = [name for name in names if not (folder / name).exists()]
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks {listed(missing, 15)}. Expected every corruption that is asked for: "
            "get or make the set, or name the corruptions that are there (in `holdfast run`, by "
            "--domains)."
        )
