"""Images in folders: one folder a class, ImageNet's validation set, ImageNet-C.

Images are decoded when asked for. ImageNet-C was made at 224² and is taken as it is; other images
are resized and cropped to `size`, as ImageNet's are for 224: shorter side to 256, centre to 224.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from holdfast.data.images import Array, Images, as_tensor
from holdfast.util.settings import whole
from holdfast.util.words import listed, nearest

ENDINGS = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
# Pillow would try all that it knows, whatever the ending; some of those run other programs.
FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


class FolderImages(Images):
    """The images `root/class/file`, labelled by the place of their class in `classes`."""

    def __init__(
        self,
        root: Path,
        classes: Sequence[str],
        files: Sequence[str],
        *,
        size: int | None = 224,
        crop: bool = True,
    ):
        self.root = root
        self.classes = len(classes)
        self.names: tuple[str, ...] = tuple(classes)
        self.size = None if size is None else whole(size, "size", 1)
        self.crop = crop
        # As one array: a list of strings would be copied, page by page, into every worker.
        self.files: Array = np.array([os.fsencode(file) for file in files])
        number = {name: label for label, name in enumerate(classes)}
        self.labels = np.array([number[file.partition("/")[0]] for file in files], np.int64)

    def elsewhere(self, root: Path) -> FolderImages:
        """Images of the same names below another folder; names and labels are held once."""
        copied = copy.copy(self)
        copied.root = root
        return copied

    def at_severity(self, severity: int) -> Images:
        if self.crop:
            return super().at_severity(severity)
        root = self.root.parent / str(severity)
        if not root.is_dir():
            raise FileNotFoundError(f"There is no folder {root}.")
        return self.elsewhere(root)

    def check_there(self) -> None:
        for file in self.file_names():
            if not os.path.isfile(os.path.join(self.root, file)):
                raise FileNotFoundError(f"There is no image {self.root / file}.")

    def file_name(self, index: int) -> str:
        return os.fsdecode(bytes(self.files[index]))

    def file_names(self) -> list[str]:
        return [self.file_name(index) for index in range(len(self))]

    def raw(self, indices: Sequence[int]) -> Tensor:
        return torch.stack([as_tensor(self._pixels(index)) for index in indices])

    def _pixels(self, index: int) -> Array:
        path = self.root / self.file_name(index)
        picture = read_picture(path)
        if self.size is not None and self.crop:
            picture = resize_and_crop(picture, self.size)
        elif self.size is not None and picture.size != (self.size, self.size):
            width, height = picture.size
            raise ValueError(
                f"{path} has {width}×{height} pixels; expected {self.size}×{self.size}, as in "
                "ImageNet-C. Other images are read as a plain folder, which resizes them."
            )
        return pixels_of(picture)


def read_picture(path: Path) -> Image.Image:
    """An RGB image, decoded to its end."""
    try:
        with Image.open(path, formats=FORMATS) as picture:
            return picture.convert("RGB")
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no image {path}.") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(
            f"{path} is not an image, or is cut short or damaged ({error}): get or make it again."
        ) from None


def pixels_of(picture: Image.Image) -> Array:
    """(channels, height, width), as bytes."""
    return np.asarray(picture).transpose(2, 0, 1)


def resize_and_crop(picture: Image.Image, size: int) -> Image.Image:
    """Shorter side to 256/224 of the size, then the centre: torchvision's Resize and CenterCrop."""
    width, height = picture.size
    short, shorter = round(size * 256 / 224), min(width, height)
    width, height = short * width // shorter, short * height // shorter
    picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return picture.crop((left, top, left + size, top + size))


def list_classes(root: Path) -> list[str]:
    """Names of the class folders, sorted."""
    if not root.is_dir():
        raise FileNotFoundError(f"There is no folder {root}.")
    with os.scandir(root) as entries:
        names = [entry.name for entry in entries if entry.is_dir()]
    names = sorted(name for name in names if not name.startswith("."))
    if not names:
        raise ValueError(f"{root} has no folders: expected one folder of images for each class.")
    return names


def list_files(root: Path, classes: Sequence[str]) -> list[str]:
    """All images as `class/file`, sorted by class, then by name."""
    files: list[str] = []
    for name in classes:
        folder = root / name
        if not folder.is_dir():
            raise FileNotFoundError(f"There is no folder {folder} for the class {name!r}.")
        with os.scandir(folder) as entries:
            names = sorted(e.name for e in entries if e.name.lower().endswith(ENDINGS))
        files += [f"{name}/{file}" for file in names]
    if not files:
        raise ValueError(f"{root} holds no images; expected files ending in {listed(ENDINGS)}.")
    return files


def read_lines(path: Path, item: str) -> list[str]:
    """The lines of a text file, blank ones left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {path}.") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not a text file; expected one {item} a line.") from None
    return [line.strip() for line in lines if line.strip()]


def read_list(path: Path, classes: Sequence[str]) -> list[str]:
    """Images named by a file, one `class/file` a line, in its order."""
    files = read_lines(path, "class/file")
    known = set(classes)
    for number, file in enumerate(files, 1):
        name, slash, image = file.partition("/")
        if not (slash and image) or "/" in image or image in (".", ".."):
            raise ValueError(f"{path}, line {number}: expected class/file, found {file!r}.")
        if name not in known:
            raise ValueError(
                f"{path}, line {number}: there is no class folder {name!r}.{nearest(name, known)}"
            )
    if not files:
        raise ValueError(f"{path} names no images; expected one class/file a line.")
    return files


def read_folder(
    root: Path,
    *,
    classes: Sequence[str] | None = None,
    images: str | Path | None = None,
    size: int | None = 224,
    crop: bool = True,
) -> FolderImages:
    """The images below `root`, or those of them that the list `images` names."""
    classes = list_classes(root) if classes is None else classes
    files = list_files(root, classes) if images is None else read_list(Path(images), classes)
    return FolderImages(root, classes, files, size=size, crop=crop)
