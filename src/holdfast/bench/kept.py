"""The source that runs share: whether a model can have one, and its file, which several processes
fill."""

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
    """Whether the logits are a layer's output: that layer's input is the feature, which sources
    hold."""
    try:
        with torch.no_grad():
            network = Network(model, head=head)
            Step(network, network.prepare(images)).features  # noqa: B018  # it looks for the head
    except ValueError:
        return False
    return True


def stored(path: Path) -> dict[str, Tensor]:
    """What a source's file holds, if there is one."""
    return files.read(path, KIND)[1] if path.exists() else {}


def beside(source: Source, saved: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that others made of the same images. Not Fisher information: how many images it was
    made of is stored outside the tensors."""
    new = saved.keys() - source.tensors.keys()
    return {name: saved[name] for name in new if not name.startswith("fisher/")}


def without_health(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Without what estimates of health are made from."""
    return {name: tensor for name, tensor in tensors.items() if not name.startswith("health/")}
