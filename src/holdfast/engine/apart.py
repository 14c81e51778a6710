"""Several streams in one forward: batch norm by each one's own images, scales and shifts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.heads import Call
from holdfast.engine.mixed import GatedApart
from holdfast.engine.moments import Groups
from holdfast.engine.norms import BatchStatistics
from holdfast.engine.step import Step


class Apart(ABC):
    """The batch norm layers of a network, for several streams' images in one batch.

    streams: which images are whose. parameters: what trains; trained: of each of these, all
    streams' values, (streams, channels).
    """

    def __init__(
        self,
        layers: Mapping[str, _BatchNorm],
        streams: Groups,
        parameters: Mapping[str, nn.Parameter],
        trained: Mapping[str, Tensor],
    ):
        self.layers, self.streams, self.trained = layers, streams, trained
        self._own = {id(weight): trained[name] for name, weight in parameters.items()}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, layers normalise so."""
        before = {name: vars(layer).pop("forward", None) for name, layer in self.layers.items()}
        try:
            for name, layer in self.layers.items():
                layer.forward = partial(self._forward, name, layer)  # type: ignore[method-assign]
            yield
        finally:
            for name, layer in self.layers.items():
                del layer.forward
                if before[name] is not None:
                    layer.forward = before[name]  # type: ignore[method-assign]

    def _forward(self, name: str, layer: _BatchNorm, x: Tensor) -> Tensor:
        if len(x) != len(self.streams.of):
            raise ValueError("A norm layer sees other images than those of the batch.")
        return self.normalise(name, layer, x)

    @abstractmethod
    def normalise(self, name: str, layer: _BatchNorm, x: Tensor) -> Tensor:
        """What a layer makes of all streams' images."""

    @abstractmethod
    def take_in(self, stream: int) -> None:
        """Record a stream's images, with its own state in place."""

    def of_streams(self, weight: Tensor | None) -> Tensor | None:
        """A layer's scale or shift for each stream, (streams, channels), if it has one."""
        if weight is None or id(weight) in self._own:
            return None if weight is None else self._own[id(weight)]
        return weight.detach().expand(len(self.streams.sizes), -1)  # it does not train

    def affine_of(self, layer: _BatchNorm, like: Tensor) -> tuple[Tensor, Tensor]:
        """A layer's scale and shift for each stream; 1 and 0 where it has none."""
        scale, shift = self.of_streams(layer.weight), self.of_streams(layer.bias)
        return (
            torch.ones_like(like) if scale is None else scale,
            torch.zeros_like(like) if shift is None else shift,
        )

    @cached_property
    def gradients(self) -> tuple[list[str], Tensor]:
        """Of what trains, where there is one: names, and for each stream all of them behind each
        other; asked for after the backward."""
        found = {n: values.grad for n, values in self.trained.items() if values.grad is not None}
        return list(found), torch.cat(
            [gradient for gradient in found.values() if gradient is not None], 1
        )


class BatchApart(Apart):
    """Layers that go by each stream's images alone; `by`: None where there are no such layers."""

    def __init__(
        self,
        by: BatchStatistics | None,
        streams: Groups,
        parameters: Mapping[str, nn.Parameter],
        trained: Mapping[str, Tensor],
    ):
        super().__init__({} if by is None else by.layers, streams, parameters, trained)
        self.by = by
        # For each time that layers ran, by layer: of every stream mean and unbiased variance.
        self.seen: list[dict[str, Tensor]] = []

    def normalise(self, name: str, layer: _BatchNorm, x: Tensor) -> Tensor:
        streams = self.streams
        mean, var, centred = streams.moments(x)
        values = streams.values(x)
        self._see(name, torch.cat([mean, var * (values / (values - 1))], 1))
        scale, shift = self.affine_of(layer, mean)
        none, all_of_it = mean.new_zeros(()), mean.new_ones(())
        out: Tensor = GatedApart.apply(  # type: ignore[no-untyped-call]
            x, scale, shift, centred, none, var, all_of_it, streams, layer.eps
        )
        return out

    def _see(self, name: str, found: Tensor) -> None:
        for before in self.seen:
            if name not in before:
                before[name] = found
                return
        self.seen.append({name: found})

    @cached_property
    def _seen(self) -> list[tuple[list[str], Tensor]]:
        return [(list(found), torch.cat(list(found.values()), 1)) for found in self.seen]

    def take_in(self, stream: int) -> None:
        if self.by is not None:
            seen = [(names, values[stream]) for names, values in self._seen]
            self.by.take_in(seen, self.streams.sizes[stream])


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
