"""Keep a deployed image classifier accurate while its input drifts.

adapter = holdfast.adapt(model, "eata+debias", source=holdfast.Source.from_loader(model, loader))
logits = adapter(images)
"""

from __future__ import annotations

from typing import Any

import holdfast.methods  # noqa: F401 (registers all; `methods` then means the function)
from holdfast.adapter import Adapter
from holdfast.api import adapt, load
from holdfast.doctor import doctor
from holdfast.last import Last
from holdfast.method import Method
from holdfast.normalized import normalized
from holdfast.source import Source
from holdfast.spec import compose, methods

__version__ = "0.1.0"

__all__ = [
    "Adapter",
    "Last",
    "Method",
    "Source",
    "adapt",
    "compose",
    "doctor",
    "load",
    "methods",
    "normalized",
]


def __getattr__(name: str) -> Any:
    """Every method's class under its own name: `holdfast.Eata`."""
    for method in methods().values():
        if method.__name__ == name:
            return method
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(method.__name__ for method in methods().values())])
