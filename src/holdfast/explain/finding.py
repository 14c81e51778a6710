"""What a diagnosis is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["good", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """One thing found: all is well, worth knowing, or wrong."""

    level: Level
    text: str
