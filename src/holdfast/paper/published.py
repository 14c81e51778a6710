"""Published numbers: the paper's tables and figures, and a few anchors from elsewhere.

They lie in published.toml, as printed; here every one is an accuracy in percent.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.recipes.compose import compose

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Benchmark:
    """What a figure was measured on."""

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


@dataclass(frozen=True, kw_only=True)
class PublishedTable(Published):
    stream: str
    domains: tuple[str, ...]
    rows: tuple[PublishedRow, ...]

    def row(self, method: str) -> PublishedRow | None:
        """The row of a method, however its spec string is written; None: there is none."""
        preset = self.benchmark.preset
        wanted = compose(method, preset=preset)
        of_holdfast = (row for row in self.rows if row.method)
        same = (row for row in of_holdfast if compose(row.method, preset=preset) == wanted)
        return next(same, None)


@dataclass(frozen=True)
class Stated:
    """A number that the text states of a figure: the mean accuracy, say, in percent."""

    method: str
    quantity: str
    value: float


@dataclass(frozen=True, kw_only=True)
class PublishedFigure(Published):
    """A figure, as far as the paper's text gives it in words and numbers."""

    finding: str
    methods: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    stated: tuple[Stated, ...]


def published() -> dict[str, PublishedTable]:
    """All tables by id, the paper's first and in its order."""
    return {given["id"]: _table(**given) for given in _file()["table"]}


def published_figures() -> dict[str, PublishedFigure]:
    """All figures by id."""
    return {given["id"]: _figure(**given) for given in _file()["figure"]}


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))


def _table(
    source: str, benchmark: str, domains: str, columns: list[str], rows: list[Any], **others: Any
) -> PublishedTable:
    names = tuple(_file()["domains"][domains])
    return PublishedTable(
        source=_file()["source"][source],
        of_paper=source == "paper",
        benchmark=_benchmark(benchmark),
        domains=names,
        rows=tuple(_row(names, **dict(zip(columns, row, strict=True))) for row in rows),
        **others,
    )


def _row(
    domains: tuple[str, ...],
    label: str,
    method: str,
    mean: float = math.nan,
    error: float = math.nan,
    std: float | None = None,
    by_domain: list[float] | None = None,
) -> PublishedRow:
    values = {} if by_domain is None else dict(zip(domains, by_domain, strict=True))
    return PublishedRow(
        label, method, round(100 - error, 2) if math.isnan(mean) else mean, std, values
    )


def _figure(
    benchmark: str,
    methods: list[str],
    batch_sizes: list[int] | None = None,
    stated: list[Any] | None = None,
    **others: Any,
) -> PublishedFigure:
    measured_on = _benchmark(benchmark)
    return PublishedFigure(
        source=_file()["source"]["paper"],
        of_paper=True,
        benchmark=measured_on,
        methods=tuple(methods),
        batch_sizes=tuple(batch_sizes or [measured_on.batch_size]),
        stated=tuple(Stated(*numbers) for numbers in stated or ()),
        **others,
    )


def _benchmark(name: str) -> Benchmark:
    return Benchmark(**_file()["benchmark"][name])
