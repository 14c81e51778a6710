"""What a diagnosis is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing found: all is well, worth knowing, or wrong."""

    level: Literal["good", "note", "problem"]
    text: str
