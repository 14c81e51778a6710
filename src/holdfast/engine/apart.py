"""Several streams in one forward: batch norm by each one's own images, scales and shifts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.nn.functional import batch_norm
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.heads import Call
from holdfast.engine.norms import BatchStatistics
from holdfast.engine.step import Step


@dataclass
class LayerApart:
    """What a batch norm layer has for each stream, (streams, channels): scale and shift, where it
    has some; averages, which the forward takes its images into; and how often it was used."""

    weight: Tensor | None
    bias: Tensor | None
    mean: Tensor
    var: Tensor
    uses: int = 0


class NormsApart:
    """The batch norm layers of a network, for streams of so many images each, in stream order.

    trained: scales and shifts of all streams that train, by their names in the network.
    """

    def __init__(self, layers: Mapping[str, _BatchNorm], sizes: Sequence[int]):
        self.layers, self.sizes = layers, list(sizes)
        self.shares = [BatchStatistics.share(size) for size in sizes]
        self.each: dict[str, LayerApart] = {}
        self.trained: dict[str, Tensor] = {}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, layers normalise so."""
        try:
            for name, layer in self.layers.items():
                layer.forward = partial(self._forward, layer, self.each[name])  # type: ignore[method-assign]
            yield
        finally:
            for layer in self.layers.values():
                vars(layer).pop("forward", None)

    @cached_property
    def gradients(self) -> dict[str, tuple[Tensor, ...]]:
        """Of what trains, by name and stream; asked for after the backward."""
        found = {name: values.grad for name, values in self.trained.items()}
        return {name: each.unbind() for name, each in found.items() if each is not None}

    def averages(self, stream: int) -> dict[str, tuple[Tensor, Tensor, int]]:
        """What a stream's images have gone into: by layer mean, variance, and uses."""
        return {n: (own.mean[stream], own.var[stream], own.uses) for n, own in self.each.items()}

    def _forward(self, layer: _BatchNorm, own: LayerApart, x: Tensor) -> Tensor:
        if len(x) != sum(self.sizes):
            raise ValueError("A norm layer sees other images than those of the batch.")
        own.uses += 1
        if len(set(self.sizes)) == 1 and calls_cost(x):
            return self._in_one_call(layer, own, x)
        each = zip(
            torch.split(x, self.sizes),
            own.mean.unbind(),
            own.var.unbind(),
            self._by_stream(own.weight),
            self._by_stream(own.bias),
            self.shares,
            strict=True,
        )
        return torch.cat(
            [
                batch_norm(images, mean, var, weight, bias, True, share, layer.eps)
                for images, mean, var, weight, bias, share in each
            ]
        )

    def _by_stream(self, values: Tensor | None) -> Sequence[Tensor | None]:
        return [None] * len(self.sizes) if values is None else values.unbind()

    def _in_one_call(self, layer: _BatchNorm, own: LayerApart, x: Tensor) -> Tensor:
        """A channel of one stream is a channel of its own."""
        streams, size = len(self.sizes), self.sizes[0]
        apart = x.view(streams, size, *x.shape[1:]).transpose(0, 1)
        found = batch_norm(
            apart.flatten(1, 2),
            own.mean.view(-1),
            own.var.view(-1),
            None if own.weight is None else own.weight.flatten(),
            None if own.bias is None else own.bias.flatten(),
            training=True,
            momentum=self.shares[0],
            eps=layer.eps,
        )
        return (
            found.view_as(apart)
            .transpose(0, 1)
            .flatten(0, 1)
            .contiguous(memory_format=_format_of(x))
        )


def calls_cost(x: Tensor) -> bool:
    """Whether a call waits for a device, or for threads: one for all streams, with copies on the
    way in and out, is then faster than one for each."""
    return x.device.type != "cpu" or torch.get_num_threads() > 1


def _format_of(x: Tensor) -> torch.memory_format:
    last = x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


class StreamStep(Step):
    """One stream's part of a forward that several share. What is learnt from it reaches its logits
    and features, and no further: from there on all streams go back together."""

    def __init__(self, whole: Step, images: Tensor, first: int, newest: int):
        super().__init__(whole.network, images, learning=whole.learning, newest=newest)
        self.whole = whole
        self.place = slice(first, first + len(images))

    @cached_property
    def _forward(self) -> tuple[list[Call], Tensor]:
        return [], self._own(self.whole.logits)

    @cached_property
    def features(self) -> Tensor:
        return self._own(self.whole.features)

    def _own(self, whole: Tensor) -> Tensor:
        return whole.detach()[self.place].requires_grad_(whole.requires_grad)


def go_back(whole: Step, parts: Sequence[StreamStep]) -> None:
    """Take the gradients that streams' parts have gathered through the forward that they share."""
    shared = [whole.logits] + ([whole.features] if "features" in vars(whole) else [])
    gradients = [torch.zeros_like(tensor) for tensor in shared]
    for part in parts:
        own = [part.logits] + ([part.features] if "features" in vars(part) else [])
        for gradient, tensor in zip(gradients, own, strict=False):
            if tensor.grad is not None:
                gradient[part.place] = tensor.grad
    torch.autograd.backward(shared, gradients)
