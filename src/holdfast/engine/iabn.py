"""Instance-aware batch norm: statistics that give way to an image whose own lie far from them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.norms import Normalisation, Statistics, batch_norms


@dataclass(frozen=True)
class ByInstance(Normalisation):
    """By other statistics, corrected for each image as far as its own lie beyond what chance
    explains: by more than k standard errors (Gong et al. 2022, NOTE)."""

    by: Normalisation
    k: float = 4.0

    @property
    def by_batch(self) -> bool:  # type: ignore[override]
        return self.by.by_batch

    def start(self, layers: Mapping[str, _BatchNorm]) -> Statistics | None:
        for name, layer in layers.items():
            if type(layer).forward is not _BatchNorm.forward:
                raise ValueError(
                    f"Batch norm cannot be corrected for each image (iabn) in the layer {name!r}, "
                    f"a {type(layer).__name__}, which does more than normalise: choose iabn=false."
                )
        inner = self.by.start(layers)
        return None if inner is None else InstanceStatistics(layers, inner, self.k)


class InstanceNorm(nn.Module):
    """In place of a batch norm layer, with its weights, its buffers and its mode.

    With μ and σ² those that the layer goes by, and μ_i, σ²_i over an image's n pixels:
    μ' = μ + S(μ_i − μ, k·√((σ² + ε)/n)),  σ²' = relu(σ² + S(σ²_i − σ², k·(σ² + ε)·√(2/(n − 1)))),
    S(x, t) = sign(x)·max(|x| − t, 0). All variances are unbiased; all has its gradient.
    """

    def __init__(self, layer: _BatchNorm, k: float):
        super().__init__()
        self.layer = layer
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        layer, x = self.layer, input
        n = math.prod(x.shape[2:])
        if n <= 1:  # an image has no statistics of its own
            plain: Tensor = type(layer).forward(layer, x)
            return plain
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        pixels, shape = tuple(range(2, x.ndim)), (*x.shape[:2], *[1] * (x.ndim - 2))
        # By hand: several times as fast on a CPU as torch.var_mean.
        own_mean = wide.mean(pixels)
        own_var = (wide - own_mean.view(shape)).square().sum(pixels) / (n - 1)
        mean, var = self._center(own_mean, own_var, n)
        apart = own_mean - mean, own_var - var
        error = ((var + layer.eps) / n).sqrt(), (var + layer.eps) * math.sqrt(2 / (n - 1))
        mean, var = (
            value + _beyond(away, self.k * limit)
            for value, away, limit in zip((mean, var), apart, error, strict=True)
        )
        scale = (var.relu() + layer.eps).rsqrt()
        if layer.weight is not None:
            scale = scale * layer.weight
        out = (wide - mean.view(shape)) * scale.view(shape)
        if layer.bias is not None:
            out = out + layer.bias.view(1, *shape[1:])
        return out.to(x.dtype)

    def _center(self, own_mean: Tensor, own_var: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """What the layer goes by: its running statistics in eval mode; else the batch's, which
        are made from those of the images, and move the running ones."""
        layer = self.layer
        if layer.running_mean is not None and not layer.training:
            assert layer.running_var is not None
            return layer.running_mean.to(own_mean), layer.running_var.to(own_var)
        mean = own_mean.mean(0)
        squares = (n - 1) * own_var + n * (own_mean - mean).square()
        var = squares.sum(0) / (len(own_mean) * n - 1)
        if layer.running_mean is not None and layer.running_var is not None:
            share = layer.momentum
            assert share is not None and layer.num_batches_tracked is not None
            with torch.no_grad():
                layer.running_mean.lerp_(mean.to(layer.running_mean), share)
                layer.running_var.lerp_(var.to(layer.running_var), share)
                layer.num_batches_tracked += 1
        return mean, var


def _beyond(away: Tensor, limit: Tensor) -> Tensor:
    """S(x, t): how far x lies outside −t … t."""
    return away - torch.clamp(away, -limit, limit)


class InstanceStatistics(Statistics):
    """The statistics of another kind, which keep and record what they do; the layers correct."""

    def __init__(self, layers: Mapping[str, _BatchNorm], inner: Statistics, k: float):
        self.layers = dict(layers)
        self.inner = inner
        self.k = k
        self.by_batch, self.learnt, self.tensors = inner.by_batch, inner.learnt, inner.tensors
        for layer in self.layers.values():
            layer.forward = InstanceNorm(layer, k).forward  # type: ignore[method-assign]

    def snapshot(self) -> None:
        self.inner.snapshot()

    def restore(self) -> None:
        self.inner.restore()

    def loaded(self) -> None:
        self.inner.loaded()

    def leave_graphs(self) -> None:
        self.inner.leave_graphs()

    def told(self) -> Mapping[str, Any]:
        return self.inner.told()

    def begin(self) -> None:
        self.inner.begin()

    @contextmanager
    def predicting(self) -> Iterator[None]:
        with self.inner.predicting():
            yield

    @contextmanager
    def recording(self, images: int) -> Iterator[None]:
        with self.inner.recording(images):
            yield

    @contextmanager
    def aside(self, images: int) -> Iterator[None]:
        with self.inner.aside(images):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self.inner.alone():
            yield

    def write_into(self, model: nn.Module, statistics: Literal["stream", "batch"]) -> None:
        layers = batch_norms(model)
        norms = {id(layers[name]): InstanceNorm(layers[name], self.k) for name in self.layers}
        for name in self.layers:
            del layers[name].forward
        self.inner.write_into(model, statistics)
        for parent in list(model.modules()):
            for key, child in parent._modules.items():
                if id(child) in norms:
                    setattr(parent, key, norms[id(child)].eval())
