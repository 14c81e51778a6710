"""What a paper says of the methods of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.results.numbers import Number


@dataclass(frozen=True)
class PublishedNumbers:
    """What a paper prints of a method: numbers by metric, under the label that it has there."""

    label: str
    numbers: Mapping[str, Number]


@dataclass(frozen=True)
class PublishedRows:
    """What may stand beside ours, by group, and a sentence on whether and why not."""

    note: str = ""
    rows: Mapping[str, PublishedNumbers] = field(default_factory=dict)
