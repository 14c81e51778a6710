"""Whole numbers, however they are written."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any


def whole(value: Any, name: str, least: float = -math.inf, most: float = math.inf) -> int:
    """The value as int, 5.0 and np.int64(5) too; an error where it is none, or out of bounds."""
    is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if is_number and value == int(value) and least <= value <= most:
        return int(value)
    bounds = f" from {least:g}" if math.isfinite(least) else ""
    bounds += f" to {most:g}" if math.isfinite(most) else " on" if bounds else ""
    raise ValueError(f"{name} is a whole number{bounds}, not {value!r}.")
