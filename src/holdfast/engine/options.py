"""How an adapter runs its method."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from holdfast.engine.health import GUARDS, Guard, HealthOptions
from holdfast.util.words import shortened

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
    guard: Guard = "alarm"
    health: HealthOptions = HealthOptions()

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
        if not isinstance(self.compile, bool):
            raise ValueError(f"compile is True or False, not {self.compile!r}.")
        if self.guard not in GUARDS:
            raise ValueError(f"guard is one of {', '.join(GUARDS)}, not {self.guard!r}.")
        if not isinstance(self.health, HealthOptions):
            raise ValueError(
                f"health is a holdfast.HealthOptions, not {type(self.health).__name__}: "
                "health=HealthOptions(every=4)."
            )

    @classmethod
    def from_file(cls, saved: dict[str, Any]) -> Options:
        """Options as a state file holds them; older files have `rollback` in place of `guard`."""
        known = dict(saved)
        known["input_range"] = check_range(known.get("input_range", cls.input_range))
        rollback = known.pop("rollback", False)
        if not isinstance(rollback, bool):
            raise ValueError(f"rollback is True or False, not {rollback!r}.")
        if rollback:
            known["guard"] = "rollback"
        watched = known.get("health", {})
        names = {field.name for field in fields(HealthOptions)}
        if not isinstance(watched, dict) or not names >= watched.keys():
            raise ValueError(
                f"expected of health the options {', '.join(sorted(names))}, found "
                f"{shortened(str(watched))}: the file is damaged, or from a later version; load "
                "another one."
            )
        known["health"] = HealthOptions(**watched)
        return cls(**known)

    @property
    def measures_every(self) -> int:
        """One batch in so many is measured."""
        return self.health.every or (1 if self.guard == "fallback" else 8)


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
