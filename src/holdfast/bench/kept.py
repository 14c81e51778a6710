"""A source that runs share: whether a model has one, and its file, of which several processes make
parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from holdfast.engine.network import Network
from holdfast.engine.step import Step
from holdfast.source.source import KIND, Source
from holdfast.util import files


def has_features(model: nn.Module, head: str | None, images: Tensor) -> bool:
    """Whether a layer's output is the logits: what goes into it are features, as sources hold."""
    try:
        with torch.no_grad():
            network = Network(model, head=head)
            Step(network, network.prepare(images)).features  # noqa: B018  # which it looks for
    except ValueError:
        return False
    return True


def stored(path: Path) -> dict[str, Tensor]:
    """What a source's file holds, if there is one."""
    return files.read(path, KIND)[1] if path.exists() else {}


def beside(source: Source, saved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What was made of the same images by others. Fisher information is not, since how many images
    it is of stands beside it."""
    new = saved.keys() - source.tensors.keys()
    return {name: saved[name] for name in new if not name.startswith("fisher/")}


def without_health(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without that, an adapter estimates nothing."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("health/")}
