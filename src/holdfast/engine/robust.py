"""Robust batch norm, as in RoTTA: by a slow average that a batch joins before it is normalised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.mixed import Mixed
from holdfast.engine.norms import Buffers, ByRunning, RunningStatistics


class RobustStatistics(RunningStatistics):
    """Layers that normalise by a slow average of batches, which the batch learnt from is a part of
    already (Yuan et al. 2023, RoTTA)."""

    by_batch = False

    @contextmanager
    def recording(self, images: int) -> Iterator[None]:
        stored = self._buffers()
        with ExitStack() as hooks, self._lent(stored, train=False):
            for name, layer in self.layers.items():
                mix_in = partial(self._mix_in, stored[name])
                hooks.enter_context(layer.register_forward_pre_hook(mix_in))
            yield

    @contextmanager
    def aside(self, images: int) -> Iterator[None]:
        yield

    def _mix_in(
        self, stored: Buffers, layer: _BatchNorm, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        """Before a layer runs: stored ← (1 − m)·stored + m·batch, by the biased variance.

        The layer, in eval mode, then normalises by the mixture. What it is given is x, with the
        gradient that goes through the batch's part of the mixture added on the way back.
        """
        x, (stored_mean, stored_var, _) = inputs[0], stored
        assert stored_mean is not None and stored_var is not None  # ByRunning has seen to it
        with torch.no_grad():
            wide = x.to(torch.promote_types(x.dtype, stored_mean.dtype))
            axes = [d for d in range(x.ndim) if d != 1]
            var, mean = torch.var_mean(wide, axes, correction=0)
            stored_mean.lerp_(mean.to(stored_mean), self.share)
            stored_var.lerp_(var.to(stored_var), self.share)
            # Copies, since another forward may move the stored ones before a backward needs them.
            center, spread = stored_mean.clone(), stored_var.clone()
            layer.running_mean, layer.running_var = center, spread
            scale = 1 / (spread + layer.eps)
        same: Tensor = Mixed.apply(x, mean, center, scale, self.share)  # type: ignore[no-untyped-call]
        return (same, *inputs[1:])


@dataclass(frozen=True)
class ByMixture(ByRunning):
    """By running averages that start at the source's, in which a batch learnt from has this share
    before it is normalised."""

    by_batch: ClassVar[bool] = False
    kind: ClassVar[type[RunningStatistics]] = RobustStatistics
