"""Published numbers: the paper's tables and figures, and a few anchors from elsewhere.

They lie in published.toml, as printed; here every one is an accuracy in percent.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast.recipes.compose import compose

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Benchmark:
    """What a number was measured on."""

    data: str
    preset: str
    network: str
    weights: str
    severity: int
    images: int
    """Of one domain."""
    batch_size: int
    runs: int | None = None
    """None where the source does not say."""
    note: str = ""


@dataclass(frozen=True)
class PublishedRow:
    """What a source says of one method."""

    label: str
    """The method as the source writes it."""
    method: str
    """The same as a spec string; empty where holdfast has no such method."""
    mean: float
    """Over the table's domains, as printed."""
    std: float | None
    by_domain: Mapping[str, float]
    """Empty where the source gives the mean only."""


class Stated(NamedTuple):
    """A number that the text states of a figure: the mean accuracy, say, in percent."""

    method: str
    quantity: str
    value: float


@dataclass(frozen=True, kw_only=True)
class Published:
    """A table or a figure, with all that must be the same for a number of ours to stand beside."""

    id: str
    source: str
    of_paper: bool
    """False: an anchor from elsewhere, under a protocol that is not the paper's."""
    where: str
    caption: str
    benchmark: Benchmark
    stream: str = "continual"
    domains: tuple[str, ...]
    rows: tuple[PublishedRow, ...]
    """Of a table."""
    finding: str = ""
    """What the text says of a figure; empty of tables, which say it themselves."""
    methods: tuple[str, ...] = ()
    """Drawn in a figure, as far as the text names them."""
    batch_sizes: tuple[int, ...]
    stated: tuple[Stated, ...] = ()

    def row(self, method: str) -> PublishedRow | None:
        """The row of a method, however its spec string is written; None: there is none."""
        preset = self.benchmark.preset
        wanted = compose(method, preset=preset)
        of_holdfast = (row for row in self.rows if row.method)
        same = (row for row in of_holdfast if compose(row.method, preset=preset) == wanted)
        return next(same, None)


def published() -> dict[str, Published]:
    """All tables by id, the paper's first and in its order."""
    return {given["id"]: _published(given) for given in _file()["table"]}


def published_figures() -> dict[str, Published]:
    """All figures by id."""
    return {given["id"]: _published(given) for given in _file()["figure"]}


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))


def _published(given: dict[str, Any]) -> Published:
    file, source = _file(), given.get("source", "paper")
    benchmark = file["benchmark"][given["benchmark"]]
    domains = file["domains"][given.get("domains", "sixteen")]
    rows = (dict(zip(given["columns"], row, strict=True)) for row in given.get("rows", ()))
    whole = {
        "batch_sizes": [benchmark["batch_size"]],
        **given,
        "source": file["source"][source],
        "of_paper": source == "paper",
        "benchmark": benchmark,
        "domains": domains,
        "rows": [_row(domains, **row) for row in rows],
    }
    return msgspec.convert(whole, Published)


def _row(
    domains: list[str], error: float = 0, by_domain: list[float] | None = None, **fields: Any
) -> dict[str, Any]:
    values = {} if by_domain is None else dict(zip(domains, by_domain, strict=True))
    return {"mean": round(100 - error, 2), "std": None, "by_domain": values, **fields}
