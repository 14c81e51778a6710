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


@dataclass(frozen=True)
class Axis:
    """One setting, and the curves along it."""

    key: str
    """method.setting, or batch."""
    title: str
    table: pl.DataFrame
    """A row for each entry on a curve: method, curve, value, mean, std, runs, host."""

    @property
    def is_rate(self) -> bool:
        """Whether it is a learning rate, which nobody can choose well without labels."""
        return self.key.endswith(".lr")


def sweeps(comparison: Comparison) -> list[Axis]:
    """Every axis along which some curve has two values or more."""
    families: dict[tuple[str, ...], list[Group]] = {}
    for entry in comparison.groups:
        families.setdefault(entry.names, []).append(entry)
    curves: dict[str, list[tuple[str, list[Group]]]] = {}
    for names, entries in families.items():
        for key in _varying(entries):
            for rest, group in _curves(entries, key):
                name = "+".join(names) + (f" ({rest})" if rest else "")
                curves.setdefault(key, []).append((name, group))
    return [
        Axis(key, _title(key), pl.DataFrame(_rows(comparison, key, found), schema=SCHEMA))
        for key, found in curves.items()
    ]


SCHEMA: dict[str, Any] = {
    "method": pl.String,
    "curve": pl.String,
    "value": pl.Float64,
    "mean": pl.Float64,
    "std": pl.Float64,
    "runs": pl.Int64,
    "host": pl.String,
    "host_mean": pl.Float64,
}


def configuration(entry: Group) -> dict[str, Any]:
    """Everything that is set, resolved."""
    others = {k: v for k, v in entry.conditions.items() if k not in ("version", "source data")}
    return {**entry.first.settings, **others}


def _varying(entries: list[Group]) -> list[str]:
    known = [configuration(one) for one in entries]
    keys = dict.fromkeys(key for one in known for key in one)
    return [
        key
        for key in keys
        if all(_is_number(one.get(key)) for one in known) and len({one[key] for one in known}) > 1
    ]


def _curves(entries: list[Group], key: str) -> Iterator[tuple[str, list[Group]]]:
    """Entries that differ in one setting alone; named by what else sets curves apart."""
    groups: dict[str, list[Group]] = {}
    for one in entries:
        rest = {name: value for name, value in configuration(one).items() if name != key}
        groups.setdefault(json.dumps(rest, sort_keys=True, default=str), []).append(one)
    long = {
        rest: group
        for rest, group in groups.items()
        if len({configuration(one)[key] for one in group}) > 1
    }
    known = [json.loads(rest) for rest in long]
    apart = [
        name
        for name in dict.fromkeys(name for one in known for name in one)
        if len({str(one.get(name)) for one in known}) > 1
    ]
    for rest, group in zip(known, long.values(), strict=True):
        yield (
            ", ".join(f"{_title(name)} {rest.get(name)}" for name in apart),
            sorted(group, key=lambda one: float(configuration(one)[key])),
        )


def _rows(
    comparison: Comparison, key: str, curves: list[tuple[str, list[Group]]]
) -> Iterator[dict[str, Any]]:
    for name, group in curves:
        hosts = {one.label: one for entry in group if (one := comparison.host_of(entry))}
        # A level that all points share; where the host is swept too, it has a curve of its own.
        host = next(iter(hosts.values())) if len(hosts) == 1 else None
        for entry in group:
            yield {
                "method": entry.label,
                "curve": name,
                "value": float(configuration(entry)[key]),
                "mean": _known(entry.mean("mean_accuracy")),
                "std": _known(entry.std("mean_accuracy")),
                "runs": len(entry.runs),
                "host": None if host is None else host.label,
                "host_mean": None if host is None else _known(host.mean("mean_accuracy")),
            }


def _known(value: float) -> float | None:
    return None if value != value else value


def _title(key: str) -> str:
    if key == BATCH:
        return "batch size"
    part, _, name = key.rpartition(".")
    return f"{GREEK.get(name, name)} of {part}" if part else name


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
