"""By which statistics batch norm normalises, and what becomes of them along a stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Normalising = Literal["source", "batch", "running", "robust"]

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    # An InstanceNorm is a _NormBase, not a _BatchNorm: it never mixes images.
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, _BatchNorm)}


def statistics_of(model: nn.Module, by: Normalising, momentum: float) -> Statistics | None:
    """Set the model's batch norm layers up; None if nothing about them changes on a stream."""
    layers = batch_norms(model)
    without = {name: layer for name, layer in layers.items() if layer.running_mean is None}
    if by in ("running", "robust"):
        if without:
            raise ValueError(
                f"This method starts from the source's running statistics, but the batch norm "
                f"layer {next(iter(without))!r} keeps none (track_running_stats=False)."
            )
        kind = RunningStatistics if by == "running" else RobustStatistics
        return kind(layers, momentum) if layers else None
    by_batch = layers if by == "batch" else without
    return BatchStatistics(by_batch) if by_batch else None


class Statistics(ABC):
    """What batch norm layers remember of a stream."""

    # Whether a batch is normalised by itself, so that one image alone has nothing to go by.
    by_batch = True
    # Whether predictions depend on what is remembered.
    learnt = False

    def __init__(self, layers: Mapping[str, _BatchNorm]):
        self.layers = dict(layers)
        self.momentum = {name: layer.momentum for name, layer in layers.items()}

    def _keep(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = dict(tensors)
        self._before = [tensor.clone() for tensor in tensors.values()]

    def live(self) -> dict[str, Tensor]:
        """The state, by name; the tensors themselves."""
        return self._tensors

    def remember(self) -> None:
        torch._foreach_copy_(self._before, list(self._tensors.values()))

    def put_back(self) -> None:
        """Undo what was recorded since `remember`."""
        torch._foreach_copy_(list(self._tensors.values()), self._before)

    def loaded(self) -> None:
        """Complete what an older file did not hold."""
        return

    @contextmanager
    def recording(self, images: int) -> Iterator[None]:
        """Let the forward inside, of so many images, count: it is learnt from."""
        for layer in self.layers.values():
            layer.train()
        try:
            yield
        finally:
            for layer in self.layers.values():
                layer.eval()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Normalise the forward inside as when learning, but remember nothing of it."""
        yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Normalise the forward inside, of one image, by what is known without it."""
        yield

    @abstractmethod
    def write_into(self, model: nn.Module, statistics: Literal["stream", "batch"]) -> None:
        """Give a copy of the adapted model plain eval-mode batch norm layers."""


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
        self.source = {name: _buffers(layer) for name, layer in layers.items()}
        self.average = {name: _zeros(layer) for name, layer in layers.items()}
        self.weight = torch.zeros(len(layers), dtype=torch.float64)
        self._keep({**_named(self.average), "weight": self.weight})
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
                kept = (source_mean, source_var, tracked)
                _lend(layer, tuple(None if each is None else each.clone() for each in kept))
                layer.track_running_stats = True


class RunningStatistics(Statistics):
    """Layers that learn by the current batch, and predict by running averages which start at the
    source's: torch's own training and evaluation."""

    learnt = True

    def __init__(self, layers: Mapping[str, _BatchNorm], momentum: float):
        super().__init__(layers)
        self._keep(_named({name: _buffers(layer) for name, layer in layers.items()}))
        for layer in self.layers.values():
            layer.momentum = momentum

    @contextmanager
    def aside(self) -> Iterator[None]:
        # On copies: autograd still needs the originals as they were in the forward learnt from.
        own = {name: _buffers(layer) for name, layer in self.layers.items()}
        for name, layer in self.layers.items():
            _lend(layer, tuple(None if each is None else each.clone() for each in own[name]))
        try:
            with self.recording(0):
                yield
        finally:
            for name, layer in self.layers.items():
                _lend(layer, own[name])

    def write_into(self, model: nn.Module, statistics: Literal["stream", "batch"]) -> None:
        for name, layer in batch_norms(model).items():
            layer.momentum = self.momentum[name]


class RobustStatistics(Statistics):
    """Layers that normalise by a slow average of batches, which the batch learnt from is a part of
    already (Yuan et al. 2023, RoTTA)."""

    by_batch = False
    learnt = True

    def __init__(self, layers: Mapping[str, _BatchNorm], momentum: float):
        super().__init__(layers)
        self.share = momentum
        self._keep(_named({name: _buffers(layer) for name, layer in layers.items()}))

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
        assert stored_mean is not None and stored_var is not None  # statistics_of has seen to it
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


# Running mean, running variance, number of batches; a layer may lack each.
Buffers = tuple[Tensor | None, ...]


def _named(buffers: Mapping[str, Buffers]) -> dict[str, Tensor]:
    return {
        f"{name}.{buffer}": tensor
        for name, three in buffers.items()
        for buffer, tensor in zip(BUFFERS, three, strict=True)
        if tensor is not None
    }


def _buffers(layer: _BatchNorm) -> Buffers:
    return layer.running_mean, layer.running_var, layer.num_batches_tracked


def _zeros(layer: _BatchNorm) -> tuple[Tensor, Tensor, Tensor]:
    like = next((t for t in (layer.running_mean, layer.weight) if t is not None), torch.zeros(0))
    mean, var = (like.new_zeros(layer.num_features) for _ in range(2))
    # On the processor, where it can be read without waiting for a device.
    return mean, var, torch.zeros((), dtype=torch.int64)


def _lend(layer: _BatchNorm, buffers: Buffers) -> None:
    for name, tensor in zip(BUFFERS, buffers, strict=True):
        setattr(layer, name, tensor)


def _by_batch(layer: _BatchNorm) -> None:
    """Without running buffers, batch norm uses the batch's statistics in either mode."""
    _lend(layer, (None, None, None))
    layer.track_running_stats = False
    layer.eval()
