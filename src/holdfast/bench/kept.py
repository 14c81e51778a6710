"""The file of a source that runs share: several processes make parts of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from holdfast.source.source import KIND, Source
from holdfast.util import files


def stored(path: Path) -> dict[str, Tensor]:
    """What a source's file holds, if there is one."""
    return files.read(path, KIND)[1] if path.exists() else {}


def beside(source: Source, there: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What was made of the same images by others. Fisher information is not, since how many images
    it is of stands beside it."""
    new = there.keys() - source.tensors.keys()
    return {name: there[name] for name in new if not name.startswith("fisher/")}


def without_health(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without that, an adapter estimates nothing."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("health/")}
