"""Batch norm by the statistics of the current batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

# The share of the newest batch in the average of recent statistics that `frozen()` writes out.
RECENT = 0.1


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    # An InstanceNorm is a _NormBase, not a _BatchNorm: it never mixes images.
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, _BatchNorm)}


class BatchStatistics:
    """Batch norm by the current batch, with an average of recent batches kept on the side.

    The layers' own running buffers hold that average: they start at zero and are divided by the
    weight they have gathered when they are read, so that the source's statistics have no part in
    it. Torch's kernel updates them in passing, at no cost.
    """

    def __init__(self, model: nn.Module):
        self.layers = batch_norms(model)
        self.source = {
            name: (layer.running_mean, layer.running_var, layer.num_batches_tracked)
            for name, layer in self.layers.items()
        }
        self.momentum = {name: layer.momentum for name, layer in self.layers.items()}
        self.batches = torch.zeros((), dtype=torch.int64)
        for layer in self.layers.values():
            like = next((t for t in (layer.running_mean, layer.weight) if t is not None), None)
            device = None if like is None else like.device
            dtype = None if like is None else like.dtype
            for name in ("running_mean", "running_var"):
                setattr(layer, name, torch.zeros(layer.num_features, device=device, dtype=dtype))
            layer.num_batches_tracked = None
            layer.momentum = RECENT
            layer.train()
            layer.track_running_stats = False
        self._buffers = [b for layer in self.layers.values() for b in _averages(layer)]
        self._before = [b.clone() for b in self._buffers]

    def live(self) -> dict[str, Tensor]:
        """The state, by name; the tensors themselves."""
        state = {"batches": self.batches}
        for name, layer in self.layers.items():
            state[f"{name}.mean"], state[f"{name}.var"] = _averages(layer)
        return state

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Let the forward inside count towards the average of recent batches."""
        for layer in self.layers.values():
            layer.track_running_stats = True
        try:
            yield
        finally:
            for layer in self.layers.values():
                layer.track_running_stats = False

    def remember(self) -> None:
        torch._foreach_copy_(self._before, self._buffers)

    def put_back(self) -> None:
        """Undo what was recorded since `remember`."""
        torch._foreach_copy_(self._buffers, self._before)

    @contextmanager
    def from_source(self) -> Iterator[None]:
        """Normalise the forward inside by the source's statistics."""
        if any(mean is None for mean, _, _ in self.source.values()):
            raise ValueError(
                "One image alone, and the model's batch norm keeps no running statistics to serve "
                "it: start the window with two images or more."
            )
        own = {name: _averages(layer) for name, layer in self.layers.items()}
        for name, layer in self.layers.items():
            mean, var, _ = self.source[name]
            layer.running_mean, layer.running_var = mean, var
            layer.eval()
        try:
            yield
        finally:
            for name, layer in self.layers.items():
                layer.running_mean, layer.running_var = own[name]
                layer.train()

    def write_into(self, model: nn.Module, statistics: Literal["stream", "batch"]) -> None:
        """Give a copy of the adapted model plain eval-mode batch norm layers."""
        gathered = 1 - (1 - RECENT) ** int(self.batches)
        for name, layer in batch_norms(model).items():
            mean, var, tracked = self.source[name]
            layer.momentum = self.momentum[name]
            layer.eval()
            layer.track_running_stats = statistics == "stream"
            if statistics == "batch":
                layer.running_mean = layer.running_var = None
                continue
            layer.num_batches_tracked = torch.tensor(0) if tracked is None else tracked.clone()
            if gathered:
                for buffer in _averages(layer):
                    buffer /= gathered
            elif mean is not None and var is not None:
                layer.running_mean, layer.running_var = mean.clone(), var.clone()
            else:
                layer.reset_running_stats()


def _averages(layer: _BatchNorm) -> tuple[Tensor, Tensor]:
    assert layer.running_mean is not None
    assert layer.running_var is not None
    return layer.running_mean, layer.running_var
