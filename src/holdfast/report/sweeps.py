"""Sweeps: settings that vary between runs of the same methods, while all else stays the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from holdfast.results.comparison import Comparison
from holdfast.results.group import Group

GREEK = {
    "alpha": "α",
    "lambda_ema": "λ ema",
    "lambda_src": "λ src",
    "lambda_cons": "λ cons",
    "lr": "learning rate",
}
BATCH = "batch"


_COLUMNS: dict[str, Any] = {
    "method": pl.String,
    "curve": pl.String,
    "value": pl.Float64,
    "mean": pl.Float64,
    "std": pl.Float64,
    "runs": pl.Int64,
    "host": pl.String,
    "host_mean": pl.Float64,
}


@dataclass(frozen=True)
class Axis:
    """One setting, and the curves along it."""

    key: str
    """method.setting, or batch."""
    title: str
    table: pl.DataFrame
    """A row for each group on a curve, with the host's accuracy where all of them share it."""

    @property
    def is_rate(self) -> bool:
        """Whether it is a learning rate, which nobody can choose well without labels."""
        return self.key.endswith(".lr")


def sweeps(comparison: Comparison) -> list[Axis]:
    """Every axis along which some curve has two values or more."""
    families: dict[tuple[str, ...], list[Group]] = {}
    for group in comparison.groups:
        families.setdefault(group.names, []).append(group)
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for names, groups in families.items():
        for key in _varying(groups):
            for rest, curve in _curves(groups, key):
                name = "+".join(names) + (f" ({rest})" if rest else "")
                rows.setdefault(key, []).extend(_rows(comparison, name, key, curve))
    return [
        Axis(
            key,
            _title(key),
            pl.DataFrame(found, schema=_COLUMNS, orient="row").with_columns(
                pl.selectors.float().fill_nan(None)
            ),
        )
        for key, found in rows.items()
    ]


def configuration(group: Group) -> dict[str, Any]:
    """Everything that is set, resolved."""
    others = {k: v for k, v in group.conditions.items() if k not in ("version", "source data")}
    return {**group.first.settings, **others}


def _varying(groups: list[Group]) -> list[str]:
    known = [configuration(group) for group in groups]
    keys = dict.fromkeys(key for settings in known for key in settings)
    return [
        key
        for key in keys
        if all(_is_number(settings.get(key)) for settings in known)
        and len({settings[key] for settings in known}) > 1
    ]


def _curves(groups: list[Group], key: str) -> Iterator[tuple[str, list[Group]]]:
    """Groups that differ in one setting alone; named by what else sets curves apart."""
    curves: dict[str, dict[float, list[Group]]] = {}
    for group in groups:
        rest = configuration(group)
        value = float(rest.pop(key))
        curve = curves.setdefault(json.dumps(rest, sort_keys=True, default=str), {})
        curve.setdefault(value, []).append(group)
    long = {rest: curve for rest, curve in curves.items() if len(curve) > 1}
    known = [json.loads(rest) for rest in long]
    apart = [
        name
        for name in dict.fromkeys(name for settings in known for name in settings)
        if len({str(settings.get(name)) for settings in known}) > 1
    ]
    for settings, curve in zip(known, long.values(), strict=True):
        name = ", ".join(f"{_title(name)} {settings.get(name)}" for name in apart)
        yield name, [group for value in sorted(curve) for group in curve[value]]


def _rows(
    comparison: Comparison, name: str, key: str, curve: list[Group]
) -> Iterator[tuple[Any, ...]]:
    hosts = {host.label: host for group in curve if (host := comparison.host_of(group))}
    # A level that all points share; where the host is swept too, it has a curve of its own.
    level: tuple[Any, ...] = (None, None)
    if len(hosts) == 1:
        level = next((label, host.mean("mean_accuracy")) for label, host in hosts.items())
    for group in curve:
        value = float(configuration(group)[key])
        mean, std = group.mean("mean_accuracy"), group.std("mean_accuracy")
        yield group.label, name, value, mean, std, len(group.runs), *level


def _title(key: str) -> str:
    if key == BATCH:
        return "batch size"
    part, _, name = key.rpartition(".")
    return f"{GREEK.get(name, name)} of {part}" if part else name


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
