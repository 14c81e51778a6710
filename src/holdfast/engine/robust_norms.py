"""Robust batch norm: by slowly moving statistics that the batch learnt from is a part of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.norms import (
    Normalisation,
    Statistics,
    buffers_of,
    check_running,
    named_buffers,
)


@dataclass(frozen=True)
class ByMixture(Normalisation):
    """By running averages that start at the source's, in which a batch learnt from has this share
    before it is normalised."""

    momentum: float

    def start(self, layers: Mapping[str, _BatchNorm]) -> Statistics | None:
        check_running(layers)
        return RobustStatistics(layers, self.momentum) if layers else None


class RobustStatistics(Statistics):
    """Layers that normalise by a slow average of batches, which the batch learnt from is a part of
    already (Yuan et al. 2023, RoTTA)."""

    by_batch = False
    learnt = True

    def __init__(self, layers: Mapping[str, _BatchNorm], momentum: float):
        super().__init__(layers)
        self.share = momentum
        self._track(named_buffers({name: buffers_of(layer) for name, layer in layers.items()}))

    @contextmanager
    def recording(self, images: int) -> Iterator[None]:
        hooks = [
            layer.register_forward_pre_hook(self._mix_in, with_kwargs=False)
            for layer in {id(layer): layer for layer in self.layers.values()}.values()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _mix_in(self, layer: _BatchNorm, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Before a layer runs: stored ← (1 − m)·stored + m·batch, by the biased variance.

        The layer, in eval mode, then normalises by the mixture. What it is given is x, with the
        gradient that goes through the batch's part of the mixture added on the way back.
        """
        x, stored_mean, stored_var = inputs[0], layer.running_mean, layer.running_var
        assert stored_mean is not None and stored_var is not None  # ByMixture has seen to it
        with torch.no_grad():
            wide = x.to(torch.promote_types(x.dtype, stored_mean.dtype))
            axes = [d for d in range(x.ndim) if d != 1]
            var, mean = torch.var_mean(wide, axes, correction=0)
            stored_mean.lerp_(mean.to(stored_mean), self.share)
            stored_var.lerp_(var.to(stored_var), self.share)
            # A copy, since the next forward moves the stored one before a backward has used it.
            center, scale = stored_mean.clone(), 1 / (stored_var + layer.eps)
        same: Tensor = _Mixed.apply(x, mean, center, scale, self.share)  # type: ignore[no-untyped-call]
        return (same, *inputs[1:])

    def write_into(self, model: nn.Module, statistics: Literal["stream", "batch"]) -> None:
        """The layers are plain ones already."""


class _Mixed(torch.autograd.Function):
    """x as it is; backwards, what x does to the mean and variance that it is normalised by.

    With m = … + a·mean(x) and v = … + a·var(x), and g the gradient of x/√(v + ε) as if m and v were
    fixed: dx = g − a/N Σ g − a/N (x − mean) Σ g (x − m)/(v + ε).
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, center: Tensor, scale: Tensor, share: float
    ) -> Tensor:
        ctx.save_for_backward(x, mean, center, scale)
        ctx.share = share
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        x, mean, center, scale = ctx.saved_tensors
        axes = [d for d in range(x.ndim) if d != 1]
        shape = [1, -1] + [1] * (x.ndim - 2)
        share = ctx.share * x.shape[1] / x.numel()
        wide, g = x.to(mean.dtype), gradient.to(mean.dtype)
        total = g.sum(axes)
        # Σ g (x − m), without a copy of x − m.
        product = (g * wide).sum(axes) - center * total
        slope = share * product * scale
        through = share * total - slope * mean
        back = g - through.view(shape) - wide * slope.view(shape)
        return back.to(gradient.dtype), None, None, None, None
