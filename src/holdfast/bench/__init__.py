"""The benchmark: from options to stored runs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.bench.materials import Materials as Materials
    from holdfast.bench.metrics.recorder import Recorder as Recorder
    from holdfast.bench.plan import Run as Run
    from holdfast.bench.run import perform as perform
else:
    # Loaded when first asked for, so that the command line's help does not wait for torch.
    _PLACES = {
        "Materials": "materials",
        "Recorder": "metrics.recorder",
        "Run": "plan",
        "perform": "run",
    }

    def __getattr__(name: str) -> object:
        if name in _PLACES:
            return getattr(import_module(f"holdfast.bench.{_PLACES[name]}"), name)
        raise AttributeError(f"module 'holdfast.bench' has no attribute {name!r}")


__all__ = ["Materials", "Recorder", "Run", "perform"]
