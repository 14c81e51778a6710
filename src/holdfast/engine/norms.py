"""By which statistics batch norm normalises, and what becomes of them along a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    # An InstanceNorm is a _NormBase, not a _BatchNorm: it never mixes images.
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, _BatchNorm)}


@dataclass(frozen=True)
class Normalisation(ABC):
    """By which statistics batch norm goes: a value that a method brings, such as `ByBatch()`."""

    # Whether a batch is normalised by itself, so that one image alone has nothing to go by.
    by_batch: ClassVar[bool] = False

    @abstractmethod
    def start(self, layers: Mapping[str, _BatchNorm]) -> Statistics | None:
        """Set a network's batch norm layers up; None if nothing about them changes on a stream."""


class Statistics(ABC):
    """What the batch norm layers of one network go by, and what they record of a stream."""

    by_batch = True
    # Whether predictions depend on what is recorded, so that it is a part of what was learnt.
    learnt = False

    def __init__(self, layers: Mapping[str, _BatchNorm]):
        self.layers = dict(layers)
        self.momentum = {name: layer.momentum for name, layer in layers.items()}
        self._track({})

    def _track(self, tensors: Mapping[str, Tensor]) -> None:
        """Name the tensors that are its state."""
        self._tensors = dict(tensors)
        self._before = [tensor.clone() for tensor in tensors.values()]

    def tensors(self) -> dict[str, Tensor]:
        """The state, by name; the tensors themselves."""
        return self._tensors

    def snapshot(self) -> None:
        if self._before:
            torch._foreach_copy_(self._before, list(self._tensors.values()))

    def restore(self) -> None:
        """Undo what was recorded since `snapshot`."""
        if self._before:
            torch._foreach_copy_(list(self._tensors.values()), self._before)

    def loaded(self) -> None:
        """Complete what an older file did not hold."""
        return

    # How a forward inside each of these is normalised.

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """As for a prediction; nothing is recorded."""
        yield

    @contextmanager
    def recording(self, images: int) -> Iterator[None]:
        """As when learning; these images, so many, are recorded."""
        for layer in self.layers.values():
            layer.train()
        try:
            yield
        finally:
            for layer in self.layers.values():
                layer.eval()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """As when learning, but nothing is recorded."""
        with self.predicting():
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One image, where a batch is normalised by itself: by what is known without it."""
        yield

    @abstractmethod
    def write_into(self, model: nn.Module, statistics: Literal["stream", "batch"]) -> None:
        """Give a copy of the adapted model eval-mode layers that go by these statistics without
        this object's help; they may be other layers in place of the model's."""


class BatchStatistics(Statistics):
    """Layers that normalise by the current batch, with an average of recent batches on the side.

    The layers have no running buffers, so that train and eval mode are alike, but while a batch
    is recorded: then they are lent buffers that start at zero, and torch's kernel averages into
    them in passing, at no cost. Read out, an average is divided by the weight it has gathered, so
    that neither the zeros nor the source's statistics have a part in it.

    A batch of n images counts n / (n + REACH): a few large batches are enough, so that an average
    soon follows a change of domain, and small ones add up.
    """

    REACH = 16

    def __init__(self, layers: Mapping[str, _BatchNorm]):
        super().__init__(layers)
        self.source = {name: buffers_of(layer) for name, layer in layers.items()}
        self.average = {name: _zeros(layer) for name, layer in layers.items()}
        self.weight = torch.zeros(len(layers), dtype=torch.float64)
        self._track({**named_buffers(self.average), "weight": self.weight})
        for layer in self.layers.values():
            _by_batch(layer)

    def loaded(self) -> None:
        if not self.weight.any():  # version 0.1 had a share of 0.1 for every batch
            self.weight.copy_(1 - 0.9 ** self._uses())

    def _uses(self) -> Tensor:
        """How often each layer was used; more than once a batch where it is shared."""
        return torch.tensor([int(count) for _, _, count in self.average.values()])

    @contextmanager
    def recording(self, images: int) -> Iterator[None]:
        share, before = images / (images + self.REACH), self._uses()
        for name, layer in self.layers.items():
            layer.momentum = share
            _lend(layer, self.average[name])
            layer.track_running_stats = True
            layer.train()
        try:
            yield
        finally:
            for layer in self.layers.values():
                _by_batch(layer)
            self.weight.copy_(1 - (1 - self.weight) * (1 - share) ** (self._uses() - before))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """By the source's statistics."""
        if any(mean is None for mean, _, _ in self.source.values()):
            raise ValueError(
                "One image alone, and the model's batch norm keeps no running statistics to serve "
                "it: start the window with two images or more."
            )
        for name, layer in self.layers.items():
            _lend(layer, self.source[name])
            layer.eval()
        try:
            yield
        finally:
            for layer in self.layers.values():
                _by_batch(layer)

    def write_into(self, model: nn.Module, statistics: Literal["stream", "batch"]) -> None:
        weights = dict(zip(self.layers, self.weight.tolist(), strict=True))
        for name, layer in batch_norms(model).items():
            if name not in self.layers:
                continue
            layer.eval()
            layer.momentum = self.momentum[name]
            mean, var, count = self.average[name]
            source_mean, source_var, tracked = self.source[name]
            if statistics == "stream" and int(count):
                gathered = weights[name]
                new_count = count.to(mean.device, copy=True) if tracked is None else tracked.clone()
                _lend(layer, (mean / gathered, var / gathered, new_count))
                layer.track_running_stats = True
            elif statistics == "stream" and source_mean is not None and source_var is not None:
                _lend(layer, _cloned((source_mean, source_var, tracked)))
                layer.track_running_stats = True


class RunningStatistics(Statistics):
    """Layers that learn by the current batch, and predict by running averages which start at the
    source's: torch's own training and evaluation."""

    learnt = True

    def __init__(self, layers: Mapping[str, _BatchNorm], momentum: float):
        super().__init__(layers)
        self._track(named_buffers({name: buffers_of(layer) for name, layer in layers.items()}))
        for layer in self.layers.values():
            layer.momentum = momentum

    @contextmanager
    def aside(self) -> Iterator[None]:
        # On copies: autograd still needs the originals as they were in the forward learnt from.
        own = {name: buffers_of(layer) for name, layer in self.layers.items()}
        for name, layer in self.layers.items():
            _lend(layer, _cloned(own[name]))
        try:
            with self.recording(0):
                yield
        finally:
            for name, layer in self.layers.items():
                _lend(layer, own[name])

    def write_into(self, model: nn.Module, statistics: Literal["stream", "batch"]) -> None:
        for name, layer in batch_norms(model).items():
            layer.momentum = self.momentum[name]


@dataclass(frozen=True)
class BySource(Normalisation):
    """By the source's running statistics; layers that keep none go by the batch."""

    def start(self, layers: Mapping[str, _BatchNorm]) -> Statistics | None:
        without = {name: layer for name, layer in layers.items() if layer.running_mean is None}
        return BatchStatistics(without) if without else None


@dataclass(frozen=True)
class ByBatch(Normalisation):
    """By the statistics of the current batch."""

    by_batch: ClassVar[bool] = True

    def start(self, layers: Mapping[str, _BatchNorm]) -> Statistics | None:
        return BatchStatistics(layers) if layers else None


@dataclass(frozen=True)
class ByRunning(Normalisation):
    """Learn by the current batch, predict by running averages, in which a new batch has this
    share."""

    momentum: float = 0.1
    by_batch: ClassVar[bool] = True

    def start(self, layers: Mapping[str, _BatchNorm]) -> Statistics | None:
        check_running(layers)
        return RunningStatistics(layers, self.momentum) if layers else None


def check_running(layers: Mapping[str, _BatchNorm]) -> None:
    for name, layer in layers.items():
        if layer.running_mean is None:
            raise ValueError(
                f"This method starts from the source's running statistics, but the batch norm "
                f"layer {name!r} keeps none (track_running_stats=False)."
            )


# Running mean, running variance, number of batches; a layer may lack each.
Buffers = tuple[Tensor | None, ...]


def named_buffers(buffers: Mapping[str, Buffers]) -> dict[str, Tensor]:
    return {
        f"{name}.{buffer}": tensor
        for name, three in buffers.items()
        for buffer, tensor in zip(BUFFERS, three, strict=True)
        if tensor is not None
    }


def buffers_of(layer: _BatchNorm) -> Buffers:
    return layer.running_mean, layer.running_var, layer.num_batches_tracked


def _zeros(layer: _BatchNorm) -> tuple[Tensor, Tensor, Tensor]:
    like = next((t for t in (layer.running_mean, layer.weight) if t is not None), torch.zeros(0))
    mean, var = (like.new_zeros(layer.num_features) for _ in range(2))
    # On the processor, where it can be read without waiting for a device.
    return mean, var, torch.zeros((), dtype=torch.int64)


def _cloned(buffers: Buffers) -> Buffers:
    return tuple(None if tensor is None else tensor.clone() for tensor in buffers)


def _lend(layer: _BatchNorm, buffers: Buffers) -> None:
    for name, tensor in zip(BUFFERS, buffers, strict=True):
        setattr(layer, name, tensor)


def _by_batch(layer: _BatchNorm) -> None:
    """Without running buffers, batch norm uses the batch's statistics in either mode."""
    _lend(layer, (None, None, None))
    layer.track_running_stats = False
    layer.eval()
