"""Work on a source that takes long, kept under a name that tells what it was done on."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from holdfast.util import files

if TYPE_CHECKING:
    from holdfast.source.source import Source

KIND = "work on a source"


@dataclass(frozen=True)
class Work:
    """A piece of work on a source that takes long: what is kept of it, done or not.

    It is kept in the source, and in its cache folder if it has one.
    """

    source: Source
    key: str

    def kept(self) -> dict[str, Tensor]:
        """Nothing if the work has not begun."""
        held = files.under(f"work/{self.key}/", self.source.tensors)
        if not held and self._path is not None and self._path.exists():
            held = files.read(self._path, KIND)[1]
            self._hold(held)
        return held

    def keep(self, tensors: Mapping[str, Tensor]) -> None:
        held = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        self._hold(held)
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            files.write(self._path, KIND, {"model": self.source.model_hash}, held)

    def _hold(self, tensors: Mapping[str, Tensor]) -> None:
        self.source.tensors |= {f"work/{self.key}/{n}": t for n, t in tensors.items()}

    @property
    def _path(self) -> Path | None:
        folder = self.source.cache
        return None if folder is None else folder / f"{self.key[:32]}.safetensors"


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
