"""Running statistics that predict images of any number, and follow what is learnt from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.norms import ByRunning, RunningStatistics


class StoredStatistics(RunningStatistics):
    """The same where a batch is predicted, but what is learnt from are other images: a memory's,
    which may be few."""

    by_batch = False

    @contextmanager
    def recording(self, images: int) -> Iterator[None]:
        with super().recording(images), self._fit_for(images):
            yield

    @contextmanager
    def aside(self, images: int) -> Iterator[None]:
        with super().aside(images), self._fit_for(images):
            yield

    @contextmanager
    def _fit_for(self, images: int) -> Iterator[None]:
        with ExitStack() as hooks:
            if images == 1:
                for layer in self.layers.values():
                    hooks.enter_context(layer.register_forward_pre_hook(_stay_if_alone))
            yield


def _stay_if_alone(layer: _BatchNorm, inputs: tuple[Tensor, ...]) -> None:
    """One value a channel has no variance: such a layer goes by what it has stored."""
    layer.train(inputs[0][0, 0].numel() > 1)


@dataclass(frozen=True)
class ByStored(ByRunning):
    """Learn by the current batch, predict images of any number by running averages, in which what
    is learnt from has this share."""

    by_batch: ClassVar[bool] = False
    kind: ClassVar[type[RunningStatistics]] = StoredStatistics
