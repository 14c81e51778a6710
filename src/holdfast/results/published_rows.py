"""What a paper says of the methods of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.paper.published import PublishedRow


@dataclass(frozen=True)
class PublishedRows:
    """Rows of the paper's tables by group, and a sentence on whether and why not."""

    note: str
    rows: Mapping[str, PublishedRow] = field(default_factory=dict)
