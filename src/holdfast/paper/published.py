"""Published numbers: the paper's tables and figures, and a few anchors from elsewhere.

They lie in published.toml, as printed; here every one is an accuracy in percent.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from holdfast.recipes.compose import compose

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# A mean is printed with two digits after the point; the rest forgives floats.
ROUNDING = 0.005 + 1e-9


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


@dataclass(frozen=True)
class PublishedTable:
    """A table, with all that must be the same for a number of ours to stand beside it."""

    id: str
    of_paper: bool
    """False: an anchor from elsewhere, under a protocol that is not the paper's."""
    source: str
    where: str
    caption: str
    benchmark: Benchmark
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


@dataclass(frozen=True)
class PublishedFigure:
    """A figure, as far as the paper's text gives it in words and numbers."""

    id: str
    source: str
    where: str
    caption: str
    finding: str
    benchmark: Benchmark
    methods: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    stated: tuple[Stated, ...]


@dataclass(frozen=True)
class Disagreement:
    """A printed mean that is not the mean of its row."""

    table: str
    label: str
    printed: float
    recomputed: float


def published() -> dict[str, PublishedTable]:
    """All tables by id, the paper's first and in its order."""
    file = _file()
    return {given["id"]: _table(given, file) for given in file["table"]}


def published_figures() -> dict[str, PublishedFigure]:
    """All figures by id."""
    file = _file()
    return {given["id"]: _figure(given, file) for given in file["figure"]}


def disagreements() -> tuple[Disagreement, ...]:
    """The printed means that differ from the mean of their row by more than their rounding."""
    return tuple(
        Disagreement(table.id, row.label, row.mean, recomputed)
        for table in published().values()
        for row in table.rows
        if row.by_domain
        and abs((recomputed := fmean(row.by_domain.values())) - row.mean) > ROUNDING
    )


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("published.toml").read_text(encoding="utf-8"))


def _table(given: dict[str, Any], file: dict[str, Any]) -> PublishedTable:
    domains = tuple(file["domains"][given["domains"]])
    columns = given["columns"]
    return PublishedTable(
        id=given["id"],
        of_paper=given["source"] == "paper",
        source=file["source"][given["source"]],
        where=given["where"],
        caption=given["caption"],
        benchmark=Benchmark(**file["benchmark"][given["benchmark"]]),
        stream=given["stream"],
        domains=domains,
        rows=tuple(_row(dict(zip(columns, row, strict=True)), domains) for row in given["rows"]),
    )


def _row(given: dict[str, Any], domains: tuple[str, ...]) -> PublishedRow:
    values = given.get("by_domain")
    return PublishedRow(
        label=given["label"],
        method=given["method"],
        mean=given["mean"] if "mean" in given else round(100 - given["error"], 2),
        std=given.get("std"),
        by_domain={} if values is None else dict(zip(domains, values, strict=True)),
    )


def _figure(given: dict[str, Any], file: dict[str, Any]) -> PublishedFigure:
    benchmark = Benchmark(**file["benchmark"][given["benchmark"]])
    return PublishedFigure(
        id=given["id"],
        source=file["source"]["paper"],
        where=given["where"],
        caption=given["caption"],
        finding=given["finding"],
        benchmark=benchmark,
        methods=tuple(given["methods"]),
        batch_sizes=tuple(given.get("batch_sizes", [benchmark.batch_size])),
        stated=tuple(Stated(*each) for each in given.get("stated", [])),
    )
