"""Clean sets by name or by path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.data.fetch.catalogue import find_root
from holdfast.data.glyphs import Glyphs
from holdfast.data.images import Images
from holdfast.data.readers import cifar
from holdfast.data.readers.arrays import read_npz
from holdfast.data.readers.folders import read_folder, read_lines
from holdfast.util.words import listed, nearest

NAMES = ("cifar10", "cifar100", "imagenet", "glyphs")
SPLITS = ("train", "test")
IMAGENET_CLASSES = 1000
IMAGENET_FOLDERS = {
    "test": ("imagenet/val", "ImageNet/val", "ILSVRC2012/val", "val"),
    "train": ("imagenet/train", "ImageNet/train", "ILSVRC2012/train", "train"),
}


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
    if what in cifar.CLEAN:
        refuse_lists(str(what), images, classes)
        return cifar.read_clean(str(what), find_root(root), split)
    if what == "glyphs":
        refuse_lists(str(what), images, classes)
        return Glyphs(split)
    if what == "imagenet":
        place = find_folder(find_root(root), IMAGENET_FOLDERS[split])
        folder = _read_folder(place, images, classes, size)
        check_imagenet(folder.classes, classes or place)
        return folder
    place = Path(what)
    if place.is_dir():
        return _read_folder(place, images, classes, size)
    if place.suffix == ".npz":
        refuse_lists(str(what), images, classes)
        return read_npz(place)
    raise ValueError(
        f"There is no set, folder or .npz file {what}.{nearest(str(what), NAMES)} Names are "
        f"{listed(NAMES)}."
    )


def find_folder(root: Path, names: Sequence[str]) -> Path:
    """The first of these folders that is there; or the root, if that is what it is called."""
    for name in names:
        if (root / name).is_dir():
            return root / name
        if root.is_dir() and root.resolve().parts[-len(Path(name).parts) :] == Path(name).parts:
            return root
    raise FileNotFoundError(f"{root} has no folder {' or '.join(names)}.")


def check_imagenet(classes: int, where: str | Path) -> None:
    """Labels are places in the sorted list of all classes: one folder less would shift them."""
    if classes != IMAGENET_CLASSES:
        raise ValueError(
            f"{where} has {classes} classes; expected ImageNet's {IMAGENET_CLASSES}. Name them "
            "all, one a line, in a file classes=…, or open the folder by its path to have labels "
            "of its own."
        )


def read_classes(path: str | Path | None) -> list[str] | None:
    """Names of classes in the order of their labels, one a line."""
    if path is None:
        return None
    names = read_lines(Path(path), "class")
    if not names or len(set(names)) != len(names):
        raise ValueError(f"{path} names a class twice, or none; expected one class a line.")
    return names


def refuse_lists(what: str, images: object, classes: object) -> None:
    if images is not None or classes is not None:
        raise ValueError(f"images= and classes= are for sets in folders; {what} has no file names.")


def _read_folder(
    place: Path, images: str | Path | None, classes: str | Path | None, size: int | None
) -> Images:
    files = None if images is None else Path(images)
    return read_folder(place, classes=read_classes(classes), images=files, size=size)
