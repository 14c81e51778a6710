"""Images for a diagnosis, out of a file or a folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from zipfile import is_zipfile

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.data.images import Array, as_floats, as_tensor
from holdfast.data.readers.arrays import has_array, read_array
from holdfast.data.readers.folders import (
    ENDINGS,
    pixels_of,
    read_folder,
    read_picture,
    resize_and_crop,
)
from holdfast.engine.network import logits_of
from holdfast.explain.normalisations import spread
from holdfast.util.words import listed

# What images of a folder are cropped to where they differ in size and none is given.
SIZE = 224


class Sample(NamedTuple):
    """Some images, floats of shape (batch, channels, height, width), and what is known of them."""

    images: Tensor
    labels: Tensor | None = None
    classes: int | None = None
    """How many class folders there are: labels are places in their sorted list."""


def read_images(path: Path, limit: int, size: int | None = None) -> Sample:
    """At most `limit` images of a folder, or of an .npz or .npy file, spread over all of them.

    size: the side that images of a folder are resized and cropped to; by default as they are, or
        224 where they differ in size.
    """
    if limit < 1:
        raise ValueError(f"limit is a number of images, at least 1, not {limit}.")
    if path.is_dir():
        return _read_folder(path, limit, size)
    if size is not None:
        raise ValueError(f"size is for the images of a folder, and {path} is none.")
    if not path.is_file():
        raise ValueError(f"There is no file or folder {path}.")
    return _read_file(path, limit)


def labels_for(model: nn.Module, sample: Sample) -> Tensor | None:
    """Its labels; None where there are fewer class folders than the model has classes, or more:
    then a place in their list says nothing."""
    if sample.classes is None:
        return sample.labels
    try:
        with torch.no_grad():
            known = logits_of(model.eval()(sample.images[:2])).shape[1]
    except Exception:  # whatever it is, the diagnosis will say it
        return None
    return sample.labels if sample.classes == known else None


def _read_folder(folder: Path, limit: int, size: int | None) -> Sample:
    inside = sorted(folder.iterdir())
    files = [path for path in inside if path.suffix.lower() in ENDINGS]
    labels, classes = None, None
    if not files and not any(path.is_dir() for path in inside):
        raise ValueError(
            f"{folder} holds no images: expected files that end in {listed(ENDINGS)}, or a folder "
            "of them for each class."
        )
    if not files:
        sorted_ = read_folder(folder, size=None)
        files = [folder / sorted_.file_name(index) for index in range(len(sorted_))]
        labels, classes = torch.from_numpy(sorted_.labels), sorted_.classes
    chosen = spread(len(files), limit)
    pictures = [read_picture(files[index]) for index in chosen]
    if size is None and len({picture.size for picture in pictures}) > 1:
        size = SIZE
    if size is not None:
        pictures = [resize_and_crop(picture, size) for picture in pictures]
    images = torch.stack([as_tensor(pixels_of(picture)) for picture in pictures])
    return Sample(as_floats(images), None if labels is None else labels[chosen], classes)


def _read_file(path: Path, limit: int) -> Sample:
    in_archive = is_zipfile(path)
    array = read_array(path, "images" if in_archive else None)
    labels: Array | None = None
    if in_archive and has_array(path, "labels"):
        labels = read_array(path, "labels")
    if array.ndim < 2 or (array.dtype != np.uint8 and array.dtype.kind != "f"):
        raise ValueError(
            f"{path} holds {array.dtype} of shape {array.shape}; expected images, uint8 or float, "
            "of shape (batch, height, width, channels) or (batch, channels, height, width)."
        )
    chosen = spread(len(array), limit)
    images = as_floats(as_tensor(array[chosen]))
    if images.ndim == 4 and images.shape[-1] in (1, 3):
        images = images.permute(0, 3, 1, 2)
    if labels is None or labels.dtype.kind not in "iu" or labels.shape != array.shape[:1]:
        return Sample(images)
    return Sample(images, torch.from_numpy(labels[chosen].astype(np.int64)))
