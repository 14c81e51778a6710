"""The source model as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast import Method, register


@register("frozen")
@dataclass(frozen=True)
class Frozen(Method):
    """The source model as it is, with its own statistics."""

    paper: ClassVar[str] = "the baseline called Source in the tables"
    predicts: ClassVar[str] = "the source model's logits"
    groups: ClassVar[bool] = True
