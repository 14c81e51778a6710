"""Statistics between the source's and a batch's, in fixed shares."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.moments import batch_moments, image_moments
from holdfast.engine.norms import BatchStatistics, Normalisation, Statistics, batch_norms


@dataclass(frozen=True)
class ByBlend(Normalisation):
    """By (1 − a)·source + a·batch, mean and unbiased variance alike: a = alpha, or for n images
    n/(prior + n). No gradient goes through the batch's share.

    each: in a prediction, every image is a batch of its own.
    """

    alpha: float | None = None
    prior: float | None = None
    each: bool = False

    def __post_init__(self) -> None:
        if (self.alpha is None) == (self.prior is None):
            raise ValueError("ByBlend takes alpha, or prior: one of both.")

    def start(self, layers: Mapping[str, _BatchNorm]) -> Statistics | None:
        for name, layer in layers.items():
            if layer.running_mean is None:
                raise ValueError(
                    f"This method mixes the source's running statistics with the batch's, but the "
                    f"batch norm layer {name!r} keeps none (track_running_stats=False)."
                )
        return BlendedStatistics(layers, self) if layers else None

    def share(self, images: int) -> float:
        """Of the batch in the mixture."""
        if self.alpha is not None:
            return self.alpha
        assert self.prior is not None
        return images / (self.prior + images)


class BlendedNorm(nn.Module):
    """In place of a batch norm layer, whose scale and shift are its own too.

    each: whether images are now normalised one by one. used: the statistics it went by, if asked to
    keep them.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, layer: _BatchNorm, by: ByBlend):
        super().__init__()
        self.by, self.each, self.eps = by, by.each, layer.eps
        self.weight, self.bias = layer.weight, layer.bias
        assert layer.running_mean is not None and layer.running_var is not None
        self.register_buffer("mean", layer.running_mean.detach().clone())
        self.register_buffer("var", layer.running_var.detach().clone())
        self.used: list[Tensor] | None = None
        self.eval()

    def forward(self, input: Tensor) -> Tensor:
        x = input
        share = self.by.share(1 if self.each else len(x))
        mean, var = image_moments(x) if self.each else batch_moments(x)
        values = x.numel() // mean.numel()
        mean = torch.lerp(self.mean.to(mean), mean, share)
        if values > 1:
            var = torch.lerp(self.var.to(var), var * (values / (values - 1)), share)
        else:  # of a spread, one value says nothing
            var = self.var.to(var).expand_as(var)
        if self.used is not None:
            self.used.append(torch.stack([mean, var]).reshape(2, -1, len(self.mean)).mean(1))
        mean, var = mean.to(self.mean), var.to(self.var)
        if not self.each:
            return F.batch_norm(x, mean, var, self.weight, self.bias, eps=self.eps)
        scale = (var + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        shift = -mean * scale
        if self.bias is not None:
            shift = shift + self.bias
        shape = [*mean.shape] + [1] * (x.ndim - 2)
        return torch.addcmul(shift.to(x).view(shape), x, scale.to(x).view(shape))


class BlendedStatistics(Statistics):
    """Layers that go by such mixtures, with an average of recent ones on the side, which starts at
    the source's: a batch of n images counts n / (n + REACH), as in `BatchStatistics`."""

    by_batch = False

    def __init__(self, layers: Mapping[str, _BatchNorm], by: ByBlend):
        super().__init__(layers)
        self.by = by
        self.norms = {name: BlendedNorm(layer, by) for name, layer in layers.items()}
        self.average = {}
        for name, norm in self.norms.items():
            wide = torch.promote_types(norm.mean.dtype, torch.float32)
            self.average[name] = torch.stack([norm.mean, norm.var]).to(wide)
            layers[name].forward = norm.forward  # type: ignore[method-assign]
        self._track({}, **self.average)

    def leave_graphs(self) -> None:
        for name, norm in self.norms.items():
            self.layers[name].forward = torch.compiler.disable(norm.forward)  # type: ignore

    @contextmanager
    def recording(self, images: int) -> Iterator[None]:
        with self.aside(images):
            for norm in self.norms.values():
                norm.used = []
            try:
                yield
                self.take_in({name: norm.used or [] for name, norm in self.norms.items()}, images)
            finally:
                for norm in self.norms.values():
                    norm.used = None

    def take_in(self, used: Mapping[str, Sequence[Tensor]], images: int) -> None:
        """What layers went by with so many images: by layer, for each time that it ran, mean and
        variance."""
        share = BatchStatistics.share(images)
        for name, found in used.items():
            if found:
                self.average[name].lerp_(torch.stack(list(found)).mean(0), share)

    @contextmanager
    def aside(self, images: int) -> Iterator[None]:
        for norm in self.norms.values():
            norm.each = False
        try:
            yield
        finally:
            for norm in self.norms.values():
                norm.each = self.by.each

    def begin(self) -> None:
        for norm in self.norms.values():
            if norm.used is not None:
                norm.used = []

    def write_into(self, model: nn.Module, statistics: Literal["stream", "batch"]) -> None:
        layers = batch_norms(model)
        own = copy.deepcopy(self.norms) if statistics == "batch" else {}
        for name in self.norms:
            del layers[name].forward
        for name, average in self.average.items():
            running = layers[name].running_mean, layers[name].running_var
            for tensor, value in zip(running, average, strict=True):
                assert tensor is not None
                tensor.copy_(value)
        # A layer may be a child of several modules, or under several names.
        for parent in list(model.modules()):
            for key, child in parent._modules.items():
                for name, norm in own.items():
                    if layers[name] is child:
                        setattr(parent, key, norm.requires_grad_(False))
