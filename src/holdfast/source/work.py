"""Work on a source that takes long: kept with it, and in a folder where it survives a kill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from holdfast.util import files

KIND = "work on a source"


@dataclass(frozen=True)
class Work:
    """A piece of work on a source that takes long: what there is of it, done or not.

    It lies among the source's tensors, and in its cache folder if it has one. names: of all tensors
    of the source that have to do with it.
    """

    key: str
    names: tuple[str, ...]
    model_hash: str
    tensors: dict[str, Tensor]
    cache: str | Path | None

    def load(self) -> dict[str, Tensor]:
        """Nothing if the work has not begun."""
        tensors = files.under(f"work/{self.key}/", self.tensors)
        if not tensors and self._path is not None and self._path.exists():
            tensors = files.read(self._path, KIND)[1]
            self._enter(tensors)
        return tensors

    def save(self, tensors: Mapping[str, Tensor]) -> None:
        copies = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        self._enter(copies)
        if self._path is not None:
            files.write(self._path, KIND, {"model": self.model_hash}, copies)

    def _enter(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors.update({f"work/{self.key}/{n}": t for n, t in tensors.items()})

    @property
    def _path(self) -> Path | None:
        return None if self.cache is None else Path(self.cache) / f"{self.key[:32]}.safetensors"
