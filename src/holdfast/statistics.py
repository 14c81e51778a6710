"""Batch norm by the statistics of the current batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

# The share of the newest batch in the average of recent statistics that `frozen()` writes out.
RECENT = 0.1

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    # An InstanceNorm is a _NormBase, not a _BatchNorm: it never mixes images.
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, _BatchNorm)}


class BatchStatistics:
    """Layers that normalise by the current batch, with an average of recent batches on the side.

    The layers have no running buffers, so that train and eval mode are alike, but while a batch
    is recorded: then they are lent buffers that start at zero, and torch's kernel averages into
    them in passing, at no cost. Read out, an average is divided by the weight it has gathered, so
    that neither the zeros nor the source's statistics have a part in it.
    """

    def __init__(self, layers: Mapping[str, _BatchNorm]):
        self.layers = dict(layers)
        self.momentum = {name: layer.momentum for name, layer in layers.items()}
        self.source = {name: _buffers(layer) for name, layer in layers.items()}
        self.average = {name: _zeros(layer) for name, layer in layers.items()}
        self._tensors = [tensor for three in self.average.values() for tensor in three]
        self._before = [tensor.clone() for tensor in self._tensors]
        for layer in self.layers.values():
            layer.momentum = RECENT
            _by_batch(layer)

    def live(self) -> dict[str, Tensor]:
        """The state, by name; the tensors themselves."""
        return {
            f"{name}.{buffer}": tensor
            for name, three in self.average.items()
            for buffer, tensor in zip(BUFFERS, three, strict=True)
        }

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Let the forward inside count towards the average of recent batches."""
        for name, layer in self.layers.items():
            _lend(layer, self.average[name])
            layer.track_running_stats = True
            layer.train()
        try:
            yield
        finally:
            for layer in self.layers.values():
                _by_batch(layer)

    def remember(self) -> None:
        torch._foreach_copy_(self._before, self._tensors)

    def put_back(self) -> None:
        """Undo what was recorded since `remember`."""
        torch._foreach_copy_(self._tensors, self._before)

    @contextmanager
    def from_source(self) -> Iterator[None]:
        """Normalise the forward inside by the source's statistics."""
        if any(mean is None for mean, _, _ in self.source.values()):
            raise ValueError(
                "One image alone, and the model's batch norm keeps no running statistics to serve "
                "it: start the window with two images or more."
            )
        for name, layer in self.layers.items():
            _lend(layer, self.source[name])
            layer.eval()
        try:
            yield
        finally:
            for layer in self.layers.values():
                _by_batch(layer)

    def write_into(self, model: nn.Module, statistics: Literal["stream", "batch"]) -> None:
        """Give a copy of the adapted model plain eval-mode batch norm layers."""
        for name, layer in batch_norms(model).items():
            if name not in self.layers:
                continue
            layer.eval()
            layer.momentum = self.momentum[name]
            mean, var, count = self.average[name]
            source_mean, source_var, tracked = self.source[name]
            if statistics == "stream" and int(count):
                gathered = 1 - (1 - RECENT) ** int(count)
                new_count = count.clone() if tracked is None else tracked.clone()
                _lend(layer, (mean / gathered, var / gathered, new_count))
                layer.track_running_stats = True
            elif statistics == "stream" and source_mean is not None and source_var is not None:
                kept = (source_mean, source_var, tracked)
                _lend(layer, tuple(None if each is None else each.clone() for each in kept))
                layer.track_running_stats = True


Buffers = tuple[Tensor | None, ...]


def _buffers(layer: _BatchNorm) -> Buffers:
    return layer.running_mean, layer.running_var, layer.num_batches_tracked


def _zeros(layer: _BatchNorm) -> tuple[Tensor, Tensor, Tensor]:
    like = next((t for t in (layer.running_mean, layer.weight) if t is not None), torch.zeros(0))
    mean, var = (like.new_zeros(layer.num_features) for _ in range(2))
    return mean, var, torch.zeros((), dtype=torch.int64, device=like.device)


def _lend(layer: _BatchNorm, buffers: Buffers) -> None:
    for name, tensor in zip(BUFFERS, buffers, strict=True):
        setattr(layer, name, tensor)


def _by_batch(layer: _BatchNorm) -> None:
    """Without running buffers, batch norm uses the batch's statistics in either mode."""
    _lend(layer, (None, None, None))
    layer.track_running_stats = False
    layer.eval()
