"""What holdfast tells a person of methods, models and images before a stream begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["good", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """One thing that a diagnosis found: all is well, worth knowing, or wrong."""

    level: Level
    text: str
