"""By which statistics batch norm normalises, and what becomes of them along a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")

# Running mean, running variance, number of batches; a layer may lack each.
Buffers = tuple[Tensor | None, ...]


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

    def _track(self, buffers: Mapping[str, Buffers], **others: Tensor) -> None:
        """Name the tensors that are its state."""
        self.tensors = others | {
            f"{name}.{buffer}": tensor
            for name, three in buffers.items()
            for buffer, tensor in zip(BUFFERS, three, strict=True)
            if tensor is not None
        }
        self._before = [tensor.clone() for tensor in self.tensors.values()]

    def snapshot(self) -> None:
        if self._before:
            torch._foreach_copy_(self._before, list(self.tensors.values()))

    def restore(self) -> None:
        """Undo what was recorded since `snapshot`."""
        if self._before:
            torch._foreach_copy_(list(self.tensors.values()), self._before)

    def loaded(self) -> None:  # noqa: B027
        """Complete what an older file did not hold."""

    def leave_graphs(self) -> None:  # noqa: B027
        """The network is compiled: what cannot be a part of its graphs is left out of them."""

    def told(self) -> Mapping[str, Any]:
        """What is to be said of the batch that was recorded, by the names of `Last`."""
        return {}

    # How a forward inside each of these is normalised. `begin` is called as it starts.

    def begin(self) -> None:  # noqa: B027
        """A forward begins; one that failed may have left something behind."""

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """As for a prediction; nothing is recorded."""
        yield

    @contextmanager
    def recording(self, images: int) -> Iterator[None]:
        """As when learning; these images, so many, are recorded."""
        with self.predicting():
            yield

    @contextmanager
    def aside(self, images: int) -> Iterator[None]:
        """As when learning from so many images, but nothing is recorded."""
        with self.predicting():
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One image, where a batch is normalised by itself: by what is known without it."""
        yield

    def _buffers(self) -> dict[str, Buffers]:
        return {
            name: (layer.running_mean, layer.running_var, layer.num_batches_tracked)
            for name, layer in self.layers.items()
        }

    @contextmanager
    def _lent(self, buffers: Mapping[str, Buffers], *, train: bool) -> Iterator[None]:
        """Inside, layers have these buffers; then their own again, and are in eval mode."""
        own = self._buffers()
        for name, layer in self.layers.items():
            _lend(layer, buffers[name])
            layer.train(train)
        try:
            yield
        finally:
            for name, layer in self.layers.items():
                _lend(layer, own[name])
                layer.eval()

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
        self.source = self._buffers()
        self.average = {name: _zeros(layer) for name, layer in layers.items()}
        self.weight = torch.zeros(len(layers), dtype=torch.float64)
        self._track(self.average, weight=self.weight)
        for layer in self.layers.values():
            _lend(layer, (None, None, None))

    def loaded(self) -> None:
        if not self.weight.any():  # version 0.1 had a share of 0.1 for every batch
            self.weight.copy_(1 - 0.9 ** self._uses())

    def _uses(self) -> Tensor:
        """How often each layer was used; more than once a batch where it is shared."""
        return torch.tensor([int(count) for _, _, count in self.average.values()])

    @contextmanager
    def recording(self, images: int) -> Iterator[None]:
        share, before = self.share(images), self._uses()
        for layer in self.layers.values():
            layer.momentum = share
        try:
            with self._lent(self.average, train=True):
                yield
        finally:
            self._gather(share, self._uses() - before)

    @classmethod
    def share(cls, images: int) -> float:
        """What so many images count in the averages."""
        return images / (images + cls.REACH)

    def _gather(self, share: float, uses: Tensor) -> None:
        self.weight.copy_(1 - (1 - self.weight) * (1 - share) ** uses)

    def take_in(self, seen: Sequence[tuple[Collection[str], Tensor]], images: int) -> None:
        """What layers have seen of so many images elsewhere: for each time that some ran, which,
        and of each its mean and unbiased variance, all behind each other."""
        share = self.share(images)
        for names, values in seen:
            own = [tensor for name in names for tensor in self.average[name][:2]]
            found = torch.split(values.to(own[0].dtype), [len(tensor) for tensor in own])
            torch._foreach_lerp_(own, found, share)
        uses = [sum(name in names for names, _ in seen) for name in self.layers]
        torch._foreach_add_([self.average[name][2] for name in self.layers], uses)
        self._gather(share, torch.tensor(uses))

    @contextmanager
    def alone(self) -> Iterator[None]:
        """By the source's statistics."""
        if any(mean is None for mean, _, _ in self.source.values()):
            raise ValueError(
                "One image alone, and the model's batch norm keeps no running statistics to serve "
                "it: start the window with two images or more."
            )
        with self._lent(self.source, train=False):
            yield

    def write_into(self, model: nn.Module, statistics: Literal["stream", "batch"]) -> None:
        layers = batch_norms(model)
        for name, gathered in zip(self.layers, self.weight.tolist(), strict=True):
            layers[name].momentum = self.momentum[name]
            if statistics == "batch":
                continue
            mean, var, count = self.average[name]
            found = _cloned(self.source[name])
            if int(count):
                uses = count.to(mean.device, copy=True) if found[2] is None else found[2]
                found = mean / gathered, var / gathered, uses
            _lend(layers[name], found)


class RunningStatistics(Statistics):
    """Layers that learn by the current batch, and predict by running averages which start at the
    source's: torch's own training and evaluation."""

    learnt = True

    def __init__(self, layers: Mapping[str, _BatchNorm], momentum: float):
        super().__init__(layers)
        self._track(self._buffers())
        self.share = momentum
        for layer in self.layers.values():
            layer.momentum = momentum

    @contextmanager
    def recording(self, images: int) -> Iterator[None]:
        with self._lent(self._buffers(), train=True):
            yield

    @contextmanager
    def aside(self, images: int) -> Iterator[None]:
        # On copies: autograd still needs the originals as they were in the forward learnt from.
        copies = {name: _cloned(buffers) for name, buffers in self._buffers().items()}
        with self._lent(copies, train=True):
            yield

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
    kind: ClassVar[type[RunningStatistics]] = RunningStatistics

    def start(self, layers: Mapping[str, _BatchNorm]) -> Statistics | None:
        for name, layer in layers.items():
            if layer.running_mean is None:
                raise ValueError(
                    f"This method starts from the source's running statistics, but the batch norm "
                    f"layer {name!r} keeps none (track_running_stats=False)."
                )
        return self.kind(layers, self.momentum) if layers else None


def _zeros(layer: _BatchNorm) -> tuple[Tensor, Tensor, Tensor]:
    like = next((t for t in (layer.running_mean, layer.weight) if t is not None), torch.zeros(0))
    mean, var = (like.new_zeros(layer.num_features) for _ in range(2))
    # On the processor, where it can be read without waiting for a device.
    return mean, var, torch.zeros((), dtype=torch.int64)


def _cloned(buffers: Buffers) -> Buffers:
    return tuple(None if tensor is None else tensor.clone() for tensor in buffers)


def _lend(layer: _BatchNorm, buffers: Buffers) -> None:
    """Without running buffers, batch norm uses the batch's statistics in either mode."""
    for name, tensor in zip(BUFFERS, buffers, strict=True):
        setattr(layer, name, tensor)
    layer.track_running_stats = buffers[0] is not None
