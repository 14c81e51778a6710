"""The style of a batch: how much channels vary behind the first convolutions of the source model;
and how far apart styles of source batches are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from holdfast.engine.network import Network, at_least_float32

# From so many source batches, the loader cycling.
BATCHES = 1000
# A channel that does not vary has no logarithm.
LEAST = 1e-12


def styles_key(layers: int, quantile: float) -> str:
    """Below which a source keeps styles that were made so."""
    return f"styles/{layers}/{quantile:g}/"


class _Enough(Exception):  # noqa: N818 (a signal, not an error)
    """The layers that matter have run."""


@torch.no_grad()
def style_of(network: Network, images: Tensor, layers: int) -> Tensor:
    """One vector for a batch: the logarithm of each channel's unbiased variance over images and
    places, in what the first convolutions give. What comes behind them does not run."""
    convolutions = [module for module in network.model.modules() if isinstance(module, _ConvNd)]
    if not convolutions:
        raise ValueError(
            f"{network.name} has no convolution, behind which styles of batches could be "
            "told apart: leave the plug-in out that needs them."
        )
    variances: list[Tensor] = []

    def see(layer: nn.Module, inputs: Any, output: Tensor) -> None:
        axes = [0, *range(2, output.ndim)]
        variances.append(at_least_float32(output).var(axes).clamp_min(LEAST).log())
        if len(variances) == min(layers, len(convolutions)):
            raise _Enough

    with ExitStack() as hooks:
        for layer in convolutions:
            hooks.enter_context(layer.register_forward_hook(see))
        with suppress(_Enough):
            network(images)
    return torch.cat(variances)


@dataclass(frozen=True, eq=False)
class Styles:
    """The mean style of source batches, and a distance that few pairs of them exceed."""

    mean: Tensor
    limit: float

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], network: Network) -> Styles:
        """As `make_styles` wrote them."""
        mean = tensors["mean"].to(network.device, network.full_dtype)
        return cls(mean, float(tensors["limit"]))


def make_styles(
    network: Network,
    passes: Callable[[int], Iterator[tuple[Tensor, object]]],
    *,
    layers: int,
    quantile: float,
) -> dict[str, Tensor]:
    """From as many batches as it takes, in passes over the source that are numbered. Batches
    smaller than the first are left out: their styles scatter more."""
    rows = _gather(network, passes, layers)
    apart = torch.pdist(rows)
    apart = apart[apart > 0]
    if not len(apart):
        raise ValueError(
            "All batches of the source's loader have the same style, so that it is not known how "
            "far apart styles are by chance: give a loader of several batches, as large as the "
            "stream's."
        )
    made = {"mean": rows.mean(0), "limit": apart.quantile(quantile)}
    if not all(bool(tensor.isfinite().all()) for tensor in made.values()):
        raise ValueError("What the model's convolutions make of the source images is NaN or Inf.")
    return made


def _gather(
    network: Network, passes: Callable[[int], Iterator[tuple[Tensor, object]]], layers: int
) -> Tensor:
    styles: list[Tensor] = []
    size = 0
    for number in count():
        for images, _ in passes(number):
            size = size or len(images)
            if len(images) != size:
                continue
            style = style_of(network, images, layers).double().cpu()
            if number == 1 and torch.equal(style, styles[0]):
                # A loader that does not shuffle: from here on the same would come again.
                return torch.stack(styles)[torch.arange(BATCHES) % len(styles)]
            styles.append(style)
            if len(styles) == BATCHES:
                return torch.stack(styles)
    raise AssertionError("count() has no end")
