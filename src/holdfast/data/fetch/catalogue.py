"""What can be had from elsewhere: addresses, sizes, checksums, and what it unpacks to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.util.words import listed, nearest

ZENODO = "https://zenodo.org/records/{record}/files/{file}?download=1"
ZENODO_API = "https://zenodo.org/api/records/{record}/files/{file}/content"
TORONTO = "https://www.cs.toronto.edu/~kriz/{file}"
ROBUSTBENCH = (
    "https://raw.githubusercontent.com/RobustBench/robustbench/"
    "7af0e34c6b383cd73ea7a1bbced358d7ce6ad22f/robustbench/data/imagenet_test_image_ids.txt"
)


def find_root(root: str | Path | None = None) -> Path:
    """Where sets lie: as given, else $HOLDFAST_DATA, else the folder `data`."""
    return Path(root or os.environ.get("HOLDFAST_DATA") or "data")


@dataclass(frozen=True)
class Remote:
    """A file to download, and what it becomes."""

    name: str
    md5: str
    size: int
    """In bytes; roughly, where no exact size is published."""
    addresses: tuple[str, ...]
    makes: tuple[str, ...]
    """Files or folders that are there, below the root, once it is unpacked."""

    @property
    def is_archive(self) -> bool:
        return self.name.endswith((".tar", ".tar.gz"))

    def is_here(self, root: Path) -> bool:
        return all((root / made).exists() for made in self.makes)


@dataclass(frozen=True)
class Entry:
    """Something that `holdfast data get` knows by name."""

    what: str
    files: tuple[Remote, ...] = ()
    by_hand: str = ""
    """How to get it, where nobody may hand it out."""
    place: str = ""
    """Where to put it then."""
    embedded: bool = False
    """It comes with holdfast."""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def is_here(self, root: Path) -> bool:
        if self.files:
            return all(file.is_here(root) for file in self.files)
        return self.embedded or (root / self.place).exists()


def _zenodo(record: int, file: str, md5: str, size: int, *makes: str) -> Remote:
    addresses = tuple(form.format(record=record, file=file) for form in (ZENODO, ZENODO_API))
    return Remote(file, md5, size, addresses, makes)


def _cifar_c(name: str, record: int, md5: str, size: int) -> Entry:
    title = f"{name}-C: 19 corruptions of {name}'s test set in 5 severities"
    return Entry(title, (_zenodo(record, f"{name}-C.tar", md5, size, f"{name}-C"),))


def _imagenet_c(group: str, corruptions: str, md5: str, size: int) -> Remote:
    folders = (f"ImageNet-C/{name}" for name in corruptions.split())
    return _zenodo(2235448, f"{group}.tar", md5, size, *folders)


def _cifar(classes: int, version: str, folder: str, md5: str, size: int, more: str = "") -> Entry:
    file = f"cifar-{classes}-{version}.tar.gz"
    remote = Remote(file, md5, size, (TORONTO.format(file=file),), (f"cifar-{classes}-{folder}",))
    return Entry(f"CIFAR-{classes}, clean, {version} version{more}", (remote,))


_NOISE = "gaussian_noise shot_noise impulse_noise"
_BLUR = "defocus_blur glass_blur motion_blur zoom_blur"
_WEATHER = "snow frost fog brightness"
_DIGITAL = "contrast elastic_transform pixelate jpeg_compression"
_MAPPED = ": mapped, where the other is held in memory"
_LIST = "imagenet_test_image_ids.txt"

CATALOGUE = {
    "glyphs-c": Entry(
        "50 kinds of characters at 32×32 under 15 corruptions in 5 severities, drawn by code",
        embedded=True,
    ),
    "cifar10-c": _cifar_c("CIFAR-10", 2535967, "56bf5dcef84df0e2308c6dcbcbbd8499", 2_918_000_000),
    "cifar100-c": _cifar_c("CIFAR-100", 3555552, "11f0ed0f1191edbf9fa23466ae6021d3", 2_918_473_216),
    "imagenet-c": Entry(
        "ImageNet-C: 15 corruptions of ImageNet's validation set in 5 severities, 224×224",
        (
            _imagenet_c("noise", _NOISE, "e80562d7f6c3f8834afb1ecf27252745", 22_565_673_785),
            _imagenet_c("blur", _BLUR, "2d8e81fdd8e07fef67b9334fa635e45c", 7_112_704_951),
            _imagenet_c("weather", _WEATHER, "33ffea4db4d93fe4a428c40a6ce0c25d", 12_797_438_995),
            _imagenet_c("digital", _DIGITAL, "89157860d7b10d5797849337ca2e5c03", 7_757_510_705),
        ),
    ),
    "cifar10": _cifar(10, "python", "batches-py", "c58f30108f718f92721af3b95e74349a", 170_498_071),
    "cifar100": _cifar(100, "python", "python", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
    "cifar10-binary": _cifar(
        10, "binary", "batches-bin", "c32a1d4ab5d03f1284b67883e8d87530", 170_052_171, _MAPPED
    ),
    "cifar100-binary": _cifar(
        100, "binary", "binary", "03b5dce01913d631647c71ecec9e9cb8", 168_513_733
    ),
    "imagenet-5000": Entry(
        "The field's list of 5,000 validation images",
        (Remote(_LIST, "8de8bbba2cf05cb54190e49247375985", 195_000, (ROBUSTBENCH,), (_LIST,)),),
    ),
    "imagenet": Entry(
        "ImageNet's clean validation set, 50,000 images",
        by_hand="its owners give it to registered people: https://image-net.org/download.php. "
        "Sort the images into one folder for each class",
        place="imagenet/val",
    ),
    "resnext29-augmix": Entry(
        "ResNeXt-29 4×32 for CIFAR-100, trained with AugMix: --model resnext29:FILE",
        by_hand="open https://drive.google.com/file/d/1ocnHbvDdOBLvgNr6K7vEYL08hUdkD1Rv in a "
        "browser; no checksum is published",
        place="resnext29-augmix.pt",
    ),
    "resnet50-augmix": Entry(
        "ResNet-50 for ImageNet, DeepAugment + AugMix (Hendrycks 2020): --model resnet50:FILE",
        by_hand="open https://drive.google.com/file/d/1kylueoLtYtxkpVzoOA1B6tqdbRl2xt9X in a "
        "browser; no checksum is published",
        place="resnet50-augmix.pt",
    ),
    "resnet50": Entry(
        "ResNet-50 for ImageNet, torchvision's IMAGENET1K_V1: --model resnet50:FILE",
        by_hand="it is torchvision's file resnet50-19c8e357.pth; where torchvision is installed, "
        "--model torchvision:resnet50:IMAGENET1K_V1 gets it by itself",
        place="resnet50-19c8e357.pth",
    ),
}


def find_entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise ValueError(
            f"Nothing is known as {name!r}.{nearest(name, CATALOGUE)} There are "
            f"{listed(CATALOGUE, 20)}."
        )
    return CATALOGUE[name]
