"""How an adapter runs its method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from holdfast.engine.health import GUARDS, Guard, HealthOptions

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
        if self.window is not None and (not isinstance(self.window, int) or self.window < 2):
            raise ValueError(f"window is a number of images, at least 2, not {self.window!r}.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise ValueError(f"seed is a whole number, not {self.seed!r}.")
        bounds = self.input_range
        if bounds is not None and (
            not isinstance(bounds, tuple | list) or len(bounds) != 2 or bounds[0] >= bounds[1]
        ):
            raise ValueError(f"input_range is (low, high) or None, not {bounds!r}.")
        if self.guard not in GUARDS:
            raise ValueError(f"guard is one of {', '.join(GUARDS)}, not {self.guard!r}.")
        if not isinstance(self.health, HealthOptions):
            raise ValueError(
                f"health is a holdfast.HealthOptions, not {type(self.health).__name__}: "
                "health=HealthOptions(every=4)."
            )
        if self.precision not in (None, "bfloat16", "float16"):
            raise ValueError(f"precision is None, 'bfloat16' or 'float16', not {self.precision!r}.")

    @classmethod
    def from_file(cls, saved: dict[str, Any]) -> Options:
        """As a state file holds them; older ones have `rollback` in place of `guard`."""
        known = dict(saved)
        if known["input_range"] is not None:
            known["input_range"] = tuple(known["input_range"])
        if known.pop("rollback", False):
            known["guard"] = "rollback"
        known["health"] = HealthOptions(**known.get("health", {}))
        return cls(**known)

    @property
    def measures_every(self) -> int:
        """Of how many batches one is measured."""
        return self.health.every or (1 if self.guard == "fallback" else 8)
