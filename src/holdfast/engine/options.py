"""How an adapter runs its method."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from holdfast.engine.checks import InputRange
    from holdfast.engine.network import MemoryFormat

Precision = Literal["bfloat16", "float16"]


@dataclass(frozen=True)
class Options:
    """How an adapter runs its method; `adapt` says what each option is."""

    seed: int = 0
    head: str | None = None
    input_range: InputRange = (0.0, 1.0)
    window: int | None = None
    memory_format: MemoryFormat = "auto"
    compile: bool = False
    precision: Precision | None = None
    rollback: bool = False

    def __post_init__(self) -> None:
        window = self.window
        if window is not None and (not _is_whole(window) or window < 2):
            raise ValueError(f"window is a number of images, at least 2, not {window!r}.")
        if not _is_whole(self.seed):
            raise ValueError(f"seed is a whole number, not {self.seed!r}.")
        check_range(self.input_range)
        if self.precision not in (None, "bfloat16", "float16"):
            raise ValueError(f"precision is None, 'bfloat16' or 'float16', not {self.precision!r}.")
        if self.head is not None and not isinstance(self.head, str):
            raise ValueError(f"head is the name of a layer or None, not {self.head!r}.")
        for name in ("compile", "rollback"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is True or False, not {getattr(self, name)!r}.")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def check_range(bounds: object) -> InputRange:
    """Where images must lie: two numbers, or anywhere."""
    if bounds is None:
        return None
    if isinstance(bounds, tuple | list) and len(bounds) == 2:
        low, high = bounds
        numbers = [isinstance(b, Real) and not isinstance(b, bool) for b in bounds]
        if all(numbers) and low < high:
            return low, high
    raise ValueError(f"input_range is (low, high) or None, not {bounds!r}.")
