"""Statistics between the source's and a batch's, for several streams in one forward."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.apart import Apart
from holdfast.engine.blend import BlendedStatistics
from holdfast.engine.mixed import GatedApart
from holdfast.engine.moments import Groups


class BlendApart(Apart):
    """`BlendedNorm` for streams at once: a row of its tensors is a stream."""

    def __init__(
        self,
        by: BlendedStatistics,
        streams: Groups,
        parameters: Mapping[str, nn.Parameter],
        trained: Mapping[str, Tensor],
    ):
        super().__init__(by.layers, streams, parameters, trained)
        self.by = by
        # By layer, for each time that it ran: of every stream the mean and variance it went by.
        self.seen: dict[str, list[Tensor]] = {name: [] for name in self.layers}

    def normalise(self, name: str, layer: _BatchNorm, x: Tensor) -> Tensor:
        norm, streams = self.by.norms[name], self.streams
        mean, var, centred = streams.moments(x)
        values = streams.values(x)
        share = mean.new_tensor([self.by.by.share(size) for size in streams.sizes])[:, None]
        center = torch.lerp(norm.mean.to(mean), mean, share)
        # Of a spread, one value says nothing.
        told = torch.where(values > 1, share, 0)
        unbiased = var * (values / (values - 1).clamp_min(1))
        spread = torch.lerp(norm.var.to(var), unbiased, told)
        self.seen[name].append(torch.stack([center, spread], 1))
        scale, shift = self.affine_of(layer, mean)
        out: Tensor = GatedApart.apply(  # type: ignore[no-untyped-call]
            x, scale, shift, centred, mean - center, spread, mean.new_zeros(()), streams, norm.eps
        )
        return out

    def take_in(self, stream: int) -> None:
        used = {name: [each[stream] for each in found] for name, found in self.seen.items()}
        self.by.take_in(used, self.streams.sizes[stream])
