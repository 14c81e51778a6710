"""Gradients through a batch's share of the statistics that it is normalised by."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from holdfast.engine.moments import Groups


class Mixed(torch.autograd.Function):
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


class Gated(torch.autograd.Function):
    """x normalised by a mean m and a variance v of which the batch's own have a share a, scaled and
    shifted: y = γ (x − m) r + β, r = 1/√(v + ε).

    With G the gradient of y, over N values a channel: dβ = Σ G, dγ = Σ G (x − m) r, and
    dx = γ r G − a/N (γ r dβ + γ r² (x − mean) dγ). The share is a constant.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        center: Tensor,
        var: Tensor,
        mean: Tensor,
        share: Tensor,
        eps: float,
    ) -> Tensor:
        out, *kept = torch.native_batch_norm(x, scale, shift, center, var, False, 0.0, eps)
        ctx.save_for_backward(x, scale, center, var, mean, share, *kept)
        ctx.eps = eps
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, center, var, mean, share, *kept = ctx.saved_tensors
        _, to_scale, to_shift = torch.ops.aten.native_batch_norm_backward(
            gradient, x, scale, center, var, *kept, False, ctx.eps, [False, True, True]
        )
        back = None
        if ctx.needs_input_grad[0]:
            root = (var + ctx.eps).rsqrt()
            slope = scale * root
            part = share * (x.shape[1] / x.numel()) * slope
            steep = part * root * to_scale
            level = steep * mean - part * to_shift
            shape = [1, -1] + [1] * (x.ndim - 2)
            slope, steep, level = (t.to(x.dtype).view(shape) for t in (slope, steep, level))
            back = torch.addcmul(level, gradient, slope).addcmul_(x, steep, value=-1)
        return back, to_scale, to_shift, None, None, None, None, None


class GatedApart(torch.autograd.Function):
    """The same for each group of images by itself: scale, shift and what follows are (groups,
    channels), or one for all. The batch's own mean is taken off already: `centred` is x less it,
    and `offset` how far it lies above the mean that is normalised by.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        scale: Tensor,
        shift: Tensor,
        centred: Tensor,
        offset: Tensor,
        var: Tensor,
        share: Tensor,
        groups: Groups,
        eps: float,
    ) -> Tensor:
        root = (var + eps).rsqrt()
        slope = scale * root
        level = shift + offset * slope
        ctx.save_for_backward(scale, centred, offset, root, share)
        ctx.groups = groups
        level, slope = (groups.spread(each, x) for each in (level, slope))
        return torch.addcmul(level, centred, slope).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        scale, centred, offset, root, share = ctx.saved_tensors
        groups: Groups = ctx.groups
        to_shift = groups.sums(gradient)
        to_scale = root * (groups.sums(gradient * centred) + offset * to_shift)
        back = None
        if ctx.needs_input_grad[0]:
            slope = scale * root
            part = share * slope / groups.values(gradient)
            level, steep = -part * to_shift, part * root * to_scale
            level, slope, steep = (groups.spread(t, gradient) for t in (level, slope, steep))
            back = torch.addcmul(level, gradient, slope).addcmul_(centred, steep, value=-1)
            back = back.to(gradient.dtype)
        return back, to_scale, to_shift, None, None, None, None, None, None
