"""Work on a source that takes long, kept under a name that tells what it was done on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from holdfast.util import files

KIND = "work on a source"


@dataclass(frozen=True)
class Work:
    """A piece of work on a source that takes long: what there is of it, done or not.

    It lies among the source's tensors, and in its cache folder if it has one.
    """

    key: str
    tensors: dict[str, Tensor]
    model_hash: str
    folder: Path | None

    def load(self) -> dict[str, Tensor]:
        """Nothing if the work has not begun."""
        found = files.under(f"work/{self.key}/", self.tensors)
        if not found and self._path is not None and self._path.exists():
            found = files.read(self._path, KIND)[1]
            self._enter(found)
        return found

    def save(self, tensors: Mapping[str, Tensor]) -> None:
        copies = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        self._enter(copies)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            files.write(self._path, KIND, {"model": self.model_hash}, copies)

    def _enter(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors.update({f"work/{self.key}/{n}": t for n, t in tensors.items()})

    @property
    def _path(self) -> Path | None:
        return None if self.folder is None else self.folder / f"{self.key[:32]}.safetensors"


class Order:
    """Tells the images of a loader, in their order, from others."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, images: Tensor, labels: object) -> None:
        # Two numbers an image: as good as its pixels, and far faster to hash.
        flat = images.flatten(1).float()
        sums = torch.stack([flat.sum(1), (flat * flat).sum(1)])
        self._hash.update(sums.cpu().numpy().tobytes())
        if isinstance(labels, Tensor):
            self._hash.update(labels.long().cpu().numpy().tobytes())

    @property
    def digest(self) -> Tensor:
        return torch.tensor(list(self._hash.digest()), dtype=torch.uint8)
