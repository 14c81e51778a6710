"""Files of data sets, as their readers find them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image

from holdfast.data.images import Images
from holdfast.data.readers.arrays import read_npz
from holdfast.data.readers.sets import open_clean, open_data
from soak.hostile.damage import byte_edits, edited
from soak.hostile.door import Door, Harm

SIDE = 32


class SetDoor(Door):
    """One file of a set is damaged; then the set is opened and looked at."""

    name = "data set"

    def __init__(self, folder: Path):
        rng = np.random.default_rng(0)
        pixels = rng.integers(0, 256, (10, SIDE, SIDE, 3), np.uint8)
        labels = np.arange(10)
        self.files: dict[str, tuple[Path, bytes]] = {}
        self.opens: dict[str, Callable[[], Images]] = {}

        stored, packed = folder / "stored.npz", folder / "packed.npz"
        np.savez(stored, images=pixels, labels=labels)
        np.savez_compressed(packed, images=pixels / np.float32(255), labels=labels)
        self._add("npz", stored, lambda: read_npz(stored))
        self._add("packed npz", packed, lambda: read_npz(packed))

        python = folder / "python" / "cifar-10-batches-py" / "test_batch"
        python.parent.mkdir(parents=True)
        rows = pixels.transpose(0, 3, 1, 2).reshape(10, -1)
        python.write_bytes(pickle.dumps({"data": rows, "labels": labels.tolist()}, 2))
        self._add("cifar10 pickled", python, lambda: open_clean("cifar10", folder / "python"))

        binary = folder / "binary" / "cifar-10-batches-bin" / "test_batch.bin"
        binary.parent.mkdir(parents=True)
        binary.write_bytes(np.concatenate([labels[:, None].astype(np.uint8), rows], 1).tobytes())
        self._add("cifar10 binary", binary, lambda: open_clean("cifar10", folder / "binary"))

        corrupted = folder / "cifar10-c"
        corrupted.mkdir()
        np.save(corrupted / "labels.npy", np.tile(labels, 5))
        np.save(corrupted / "fog.npy", np.tile(pixels, (5, 1, 1, 1)))
        options: dict[str, Any] = {"corruptions": ["fog"], "clean": False}
        for name in ("fog", "labels"):
            self._add(
                f"cifar10-c {name}",
                corrupted / f"{name}.npy",
                lambda: open_data(corrupted, **options)["fog"],
            )

        for ending in ("png", "jpg", "bmp", "ppm", "tiff", "webp"):
            root = folder / ending
            (root / "a").mkdir(parents=True)
            picture = root / "a" / f"1.{ending}"
            Image.fromarray(pixels[0]).save(picture)
            self._add(f"folder of {ending}", picture, lambda root=root: open_clean(root, size=16))

    def _add(self, name: str, path: Path, open_set: Callable[[], Images]) -> None:
        self.files[name], self.opens[name] = (path, path.read_bytes()), open_set

    def inputs(self) -> st.SearchStrategy[Any]:
        return st.tuples(st.sampled_from(sorted(self.files)), byte_edits())

    def attempt(self, given: Any) -> None:
        name, edits = given
        path, contents = self.files[name]
        path.write_bytes(edited(contents, edits))
        try:
            images = self.opens[name]()
            for index in {0, len(images) - 1}:
                image = images.image(index)
                if not (float(image.min()) >= -0.01 and float(image.max()) <= 1.01):
                    raise Harm(f"{name}: an image lies outside [0, 1]")
                if int(images.labels[index]) < 0:
                    raise Harm(f"{name}: a label is below 0")
        finally:
            path.write_bytes(contents)
