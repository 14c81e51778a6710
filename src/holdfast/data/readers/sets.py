"""Sets by name or by path: `open_data("cifar100-c", root)`, and clean ones, `open_clean`.

A corrupted set on disk is read as it is; a clean set is corrupted as it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.data.corrupt.corruptions import (
    CORRUPTIONS,
    EVERY,
    HOLDOUT,
    Table,
    check_corruption,
)
from holdfast.data.fetch.catalogue import find_root
from holdfast.data.glyphs import Glyphs
from holdfast.data.images import Images
from holdfast.data.pools import Corrupted, Layer, Pool, Recipe, domain_name, find_table
from holdfast.data.readers import cifar
from holdfast.data.readers.arrays import read_npz
from holdfast.data.readers.folders import FolderImages, read_folder, read_lines
from holdfast.data.readers.layouts import (
    CLEAN,
    SEVERITIES,
    check_severity,
    find_corruption,
    is_arrays,
    original_name,
    read_arrays,
    read_folders,
)
from holdfast.util.words import listed, nearest

# The folders that the archives unpack to, or are usually unpacked to.
FOLDERS = {
    "cifar10-c": ("CIFAR-10-C",),
    "cifar100-c": ("CIFAR-100-C",),
    "imagenet-c": ("ImageNet-C", "imagenet-c"),
}
NAMES = ("cifar10", "cifar100", "imagenet", "glyphs")
SPLITS = ("train", "test")
IMAGENET_CLASSES = 1000
IMAGENET_FOLDERS = {
    "test": ("imagenet/val", "ImageNet/val", "ILSVRC2012/val", "val"),
    "train": ("imagenet/train", "ImageNet/train", "ILSVRC2012/train", "train"),
}


@dataclass(frozen=True)
class Domain:
    """One kind of input: a corruption, or clean images."""

    name: str
    dataset: Images


@dataclass(frozen=True)
class DataSet:
    """The domains of a set, clean images (`original`) last."""

    name: str
    classes: int
    domains: tuple[Domain, ...]

    def __getitem__(self, name: str) -> Images:
        for domain in self.domains:
            if domain.name == name:
                return domain.dataset
        names = [domain.name for domain in self.domains]
        hint = f" Open it with corruptions=[{name!r}]." if name in HOLDOUT else ""
        raise KeyError(f"{self.name} has no domain {name!r}; it has {listed(names, 20)}.{hint}")

    def at(self, *layers: Layer) -> Pool:
        """Corruptions at severities of their own, one upon the other: `at(("fog", 3))`.

        Files hold one corruption at a whole severity; a clean set takes any.
        """
        if not layers:
            return self[CLEAN]
        first, *_ = [self[name] for name, _ in layers]
        severity = layers[0][1]
        if len(layers) == 1 and severity in SEVERITIES:
            return first.at_severity(int(severity))
        if not isinstance(first, Corrupted):
            raise ValueError(
                f"{self.name} has files for one corruption at a whole severity from 1 to 5, not "
                f"for {domain_name(layers)}: open its clean set, which is corrupted as it is read."
            )
        return Corrupted(first.clean, layers, first.recipe)


def open_data(
    what: str | Path,
    root: str | Path | None = None,
    *,
    severity: int = 5,
    corruptions: Sequence[str] = CORRUPTIONS,
    clean: bool | str | Path = True,
    images: str | Path | None = None,
    classes: str | Path | None = None,
    size: int | None = 224,
    table: Table | None = None,
    seed: int = 0,
    frost: str | Path | None = None,
) -> DataSet:
    """The corruptions of a set at one severity, and its clean images last.

    `what` is a name, looked for below `root`, or a path. `cifar10-c`, `cifar100-c`, `imagenet-c`
    and folders in one of their layouts are read as they are. Whatever `open_clean` takes is
    corrupted as it is read, by `table` ("cifar" or "imagenet"; default: what fits the size of
    the images), `seed` and, for frost, textures of your own. `glyphs-c`, the embedded benchmark,
    is such a set and needs no file.

    `corruptions` are the benchmark's fifteen where none are named; `HOLDOUT` has four more.

    `clean` names the clean set where it is not found by itself; False leaves it out.
    """
    severity = check_severity(severity)
    check_corruptions(corruptions)
    name, folder = str(what), _find_corrupted(what, root)
    if folder is None:
        if not isinstance(clean, bool):
            raise ValueError(f"{name} is a clean set itself: clean= is for corrupted ones.")
        given = "glyphs" if what == "glyphs-c" else what
        original = open_clean(given, root, images=images, classes=classes, size=size)
        recipe = Recipe(table or find_table(original), seed, frost)
        domains: dict[str, Images] = {
            corruption: Corrupted(original, [(corruption, severity)], recipe)
            for corruption in corruptions
        }
        domains[CLEAN] = original
    elif is_arrays(folder) or name.removesuffix("-c") in cifar.CLEAN:
        _refuse_lists(name, images, classes)
        domains = _open_arrays(name, folder, corruptions, severity, clean)
    else:
        names = _read_classes(classes)
        folders = read_folders(
            folder, corruptions, severity, classes=names, images=images, size=size
        )
        domains, like = dict(folders), next(iter(folders.values()))
        if name == "imagenet-c":
            _check_imagenet(like.classes, classes or folder)
        if clean is not False:
            domains[CLEAN] = _find_original(name, folder, like, clean)
    if clean is False:
        domains.pop(CLEAN, None)
    count = next(iter(domains.values())).classes
    return DataSet(name, count, tuple(Domain(*pair) for pair in domains.items()))


def check_corruptions(names: Sequence[str]) -> None:
    if isinstance(names, str) or not names or len(set(names)) != len(names):
        raise ValueError(f"corruptions are different names, at least one, not {names!r}.")
    for name in names:
        check_corruption(name)


def _find_corrupted(what: str | Path, root: str | Path | None) -> Path | None:
    """The folder of a corrupted set; None where a clean one is meant."""
    if what in FOLDERS:
        name = str(what)
        try:
            return _find_folder(find_root(root), FOLDERS[name])
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{error} Get it with: holdfast data get {name}. Or open "
                f"{name.removesuffix('-c')!r}: a clean set is corrupted as it is read."
            ) from None
    folder = Path(what)
    is_corrupted = is_arrays(folder) or any(find_corruption(folder, name) for name in EVERY)
    return folder if is_corrupted else None


def _open_arrays(
    name: str,
    folder: Path,
    corruptions: Sequence[str],
    severity: int,
    clean: bool | str | Path,
) -> dict[str, Images]:
    known = cifar.CLEAN.get(name.removesuffix("-c"))
    domains = read_arrays(
        folder,
        corruptions,
        severity,
        classes=known.classes if known else None,
        image_shape=(cifar.SIDE, cifar.SIDE, 3) if known else None,
    )
    if clean is True and CLEAN not in domains:
        if known is None:
            raise _no_clean(f"{folder} has no {CLEAN}.npy.")
        clean = name.removesuffix("-c")
    if not isinstance(clean, bool):
        try:
            domains[CLEAN] = open_clean(clean, folder.parent)
        except FileNotFoundError as error:
            raise _no_clean(str(error)) from None
        labels = next(iter(domains.values())).labels
        if not np.array_equal(domains[CLEAN].labels, labels):
            raise ValueError(
                f"The labels of {clean} are not those of {folder / 'labels.npy'}; expected the "
                "same images in the same order."
            )
    return domains


def _find_original(
    name: str, corrupted: Path, like: FolderImages, clean: bool | str | Path
) -> FolderImages:
    """The same images, before their corruption."""
    if not isinstance(clean, bool):
        folder = Path(clean)
    elif name == "imagenet-c":
        try:
            folder = _find_folder(corrupted.parent, IMAGENET_FOLDERS["test"])
        except FileNotFoundError as error:
            raise _no_clean(str(error)) from None
    else:
        raise _no_clean(f"{corrupted} has no clean images.")
    files = [original_name(file) for file in like.file_names()]
    original = FolderImages(folder, like.names, files, size=like.size)
    original.check_there()
    return original


def _no_clean(why: str) -> FileNotFoundError:
    return FileNotFoundError(f"{why} Or name the clean set, clean=…, or leave it out, clean=False.")


def open_clean(
    what: str | Path,
    root: str | Path | None = None,
    *,
    split: str = "test",
    images: str | Path | None = None,
    classes: str | Path | None = None,
    size: int | None = 224,
) -> Images:
    """`cifar10`, `cifar100` or `imagenet` below `root`, an .npz file, or a folder of classes; or
    `glyphs`, which is drawn and needs no file.

    `images` is a file that names some of a folder's images, one class/file a line; `classes` one
    that names the classes in order, one a line. `size` is the side that images of a folder are
    cropped to; None leaves them as they are.
    """
    if split not in SPLITS:
        raise ValueError(f"split is {' or '.join(SPLITS)}, not {split!r}.")
    name, path = str(what), Path(what)
    known = what in cifar.CLEAN or what == "glyphs"
    if what == "imagenet":
        path = _find_folder(find_root(root), IMAGENET_FOLDERS[split])
    if path.is_dir() and not known:
        names = _read_classes(classes)
        folder = read_folder(path, classes=names, images=images, size=size)
        if what == "imagenet":
            _check_imagenet(folder.classes, classes or path)
        return folder
    if known or path.suffix == ".npz":
        _refuse_lists(name, images, classes)
    if what in cifar.CLEAN:
        return cifar.read_clean(name, find_root(root), split)
    if what == "glyphs":
        return Glyphs(split)
    if path.suffix == ".npz":
        return read_npz(path)
    raise ValueError(
        f"There is no set, folder or .npz file {what}.{nearest(str(what), NAMES)} Names are "
        f"{listed(NAMES)}."
    )


def _find_folder(root: Path, names: Sequence[str]) -> Path:
    """The first of these folders that is there; or the root, if that is what it is called."""
    for name in names:
        if (root / name).is_dir():
            return root / name
        if root.is_dir() and root.resolve().parts[-len(Path(name).parts) :] == Path(name).parts:
            return root
    raise FileNotFoundError(f"{root} has no folder {' or '.join(names)}.")


def _check_imagenet(classes: int, origin: str | Path) -> None:
    """Labels are places in the sorted list of all classes: one folder less would shift them."""
    if classes != IMAGENET_CLASSES:
        raise ValueError(
            f"{origin} has {classes} classes; expected ImageNet's {IMAGENET_CLASSES}. Name them "
            "all, one a line, in a file classes=…, or open the folder by its path to have labels "
            "of its own."
        )


def _read_classes(path: str | Path | None) -> list[str] | None:
    """Names of classes in the order of their labels, one a line."""
    if path is None:
        return None
    names = read_lines(Path(path), "class")
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{path} names a class twice, or none; expected one class a line.")
    return names


def _refuse_lists(name: str, images: object, classes: object) -> None:
    if images is not None or classes is not None:
        raise ValueError(f"images= and classes= are for sets in folders; {name} has no file names.")
