"""What charts are made of: small tables, one row a mark, means over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce, wraps
from operator import iadd
from typing import Any

import numpy as np
import polars as pl

from holdfast.results import Recorder, short
from holdfast.results.comparison import Comparison
from holdfast.results.group import Group, Number
from holdfast.results.stored import StoredRun

# A page has to stay small: so many points along a stream, and along classes.
POINTS, RANKS, FEW_RANKS = 160, 100, 25
# What fewer images say of a bin is chance, unless there are few in all.
ENOUGH = 10
# More lines than these between domains would hide what they divide.
BOUNDARIES = 40
SEVERAL = "several"

# Metrics by domain: what they are called in a summary, and what a unit of them is on the page.
BY_DOMAIN = {"accuracy": 1.0, "entropy": 1.0, "bias": 100.0}


def by_group(make: Callable[..., pl.DataFrame]) -> Callable[..., pl.DataFrame]:
    """From the table of a group to that of a comparison: the tables of all groups that have rows,
    below each other, with a group's label as the method, and nothing for NaN."""

    @wraps(make)
    def together(comparison: Comparison, *args: Any) -> pl.DataFrame:
        tables = [
            table.select(pl.lit(group.label).alias("method"), pl.all())
            for group in comparison.groups
            if len(table := make(group, *args))
        ]
        return pl.concat(tables).fill_nan(None) if tables else pl.DataFrame()

    return together


# Along the stream.


@by_group
def stream(group: Group) -> pl.DataFrame:
    """Accuracy along the stream: each point is of a few batches of one domain."""
    pieces = pl.concat([_pieces(run) for run in group.runs])
    accuracy = pl.col("accuracy")
    return _over_runs(pieces, accuracy.mean(), accuracy.std().alias("std"), pl.len().alias("runs"))


@by_group
def estimates(group: Group) -> pl.DataFrame:
    """Along the stream, accuracy as it was estimated without labels, its interval, and the true
    one, of the batches that have an estimate; in %."""
    pieces = pl.concat([_pieces(run, pl.col("estimated").is_not_null()) for run in group.runs])
    return _over_runs(pieces, pl.col("accuracy", "estimated", "low", "high").mean())


def _over_runs(pieces: pl.DataFrame, *values: pl.Expr) -> pl.DataFrame:
    domain = pl.col("domain")
    name = pl.when(domain.n_unique() == 1).then(domain.first()).otherwise(pl.lit(SEVERAL))
    return (
        pieces.group_by("segment", "piece", maintain_order=True)
        .agg(pl.col("seen").mean(), name.alias("domain"), *values)
        .sort("segment", "piece")
        .drop("segment", "piece")
    )


def _pieces(run: StoredRun, only: pl.Expr | None = None) -> pl.DataFrame:
    """Cut where the domain changes, and every few batches; `only`: of which batches."""
    few = math.ceil((run.manifest.batches or len(run.batches)) / POINTS) or 1
    seen, images = pl.col("seen"), pl.col("images")
    # The middle of the piece, so that it stands within its domain.
    middle = seen.last() / 2 + (seen - images).first() / 2
    scored = pl.col("scored").sum()
    averaged = {"estimated": "estimated", "low": "estimated_low", "high": "estimated_high"}
    return (
        run.batches.with_columns(
            pl.col("domain").rle_id().alias("segment"), images.cum_sum().alias("seen")
        )
        .with_columns((pl.int_range(pl.len()).over("segment") // few).alias("piece"))
        .filter(pl.lit(True) if only is None else only)
        .group_by("segment", "piece", maintain_order=True)
        .agg(
            middle.alias("seen"),
            pl.col("domain").first().map_elements(short, pl.String),
            (100 * pl.col("correct").sum() / scored).alias("accuracy"),
            *(
                (100 * (pl.col(column) * pl.col("scored")).sum() / scored).alias(name)
                for name, column in averaged.items()
            ),
        )
        .filter(pl.col("accuracy").is_finite())
    )


def boundaries(comparison: Comparison) -> pl.DataFrame:
    """Where domains begin and end, or visits where domains are many; empty where runs differ."""
    tables = [run.batches for run in comparison.runs if len(run.batches)]
    names: dict[str, Callable[[str], str]] = {
        "domain": short,
        "visit": lambda visit: f"visit {int(visit) + 1}",
    }
    for key, name in names.items():
        by_run = [_stretches(table, key) for table in tables]
        longest = max(by_run, key=lambda stretches: stretches["end"].max() or 0, default=None)
        if longest is None or not 1 < len(longest) <= BOUNDARIES:
            continue
        # A run that goes on ends early; the others have to agree.
        agree = all(
            stretches["name"].equals(longest["name"].head(len(stretches)))
            and stretches["end"][:-1].equals(longest["end"].head(len(stretches) - 1))
            for stretches in by_run
        )
        if agree:
            return longest.select(
                pl.col("name").map_elements(name, pl.String).alias("domain"),
                "start",
                "end",
                ((pl.col("start") + pl.col("end")) / 2).alias("middle"),
            )
    return pl.DataFrame()


def _stretches(batches: pl.DataFrame, key: str) -> pl.DataFrame:
    return (
        batches.with_columns(pl.col("images").cum_sum().alias("end"))
        .group_by(pl.col(key).rle_id().alias("segment"), maintain_order=True)
        .agg(
            pl.col(key).first().cast(pl.String).alias("name"),
            (pl.col("end").first() - pl.col("images").first()).alias("start"),
            pl.col("end").last(),
        )
        .drop("segment")
    )


@by_group
def alarms(group: Group, kind: str) -> pl.DataFrame:
    """Where predictions fell into a few classes ("collapse"), or the alarm on health first rang
    ("alarm")."""
    rows = []
    for run in group.runs:
        batch = run.metric(kind)
        if not math.isnan(batch):
            until = run.batches.filter(pl.col("batch") <= int(batch))
            rows.append(
                {
                    "run": group.which(run),
                    "batch": int(batch),
                    "seen": int(until["images"].sum()),
                    "domain": short(until["domain"][-1]) if len(until) else "unknown",
                }
            )
    return pl.DataFrame(rows)


@by_group
def fallbacks(group: Group) -> pl.DataFrame:
    """Stretches of the stream that the source model answered in place of the method."""
    by_run = [
        run.batches.with_columns(
            pl.col("fallback").fill_null(False), pl.col("images").cum_sum().alias("end")
        )
        .group_by(pl.col("fallback").rle_id().alias("stretch"), maintain_order=True)
        .agg(
            pl.lit(group.which(run)).alias("run"),
            pl.col("fallback").first(),
            (pl.col("end").first() - pl.col("images").first()).alias("start"),
            pl.col("end").last(),
            pl.len().alias("batches"),
        )
        .filter("fallback")
        .drop("fallback", "stretch")
        for run in group.runs
    ]
    return pl.concat(by_run)


# Of predictions.


@by_group
def ranks(group: Group, domain: str | None = None) -> pl.DataFrame:
    """How many images each class was predicted for, most often first, and the true level: the
    mean over classes. Of one domain or of all."""
    tallies = [
        tally
        for recorder in _recorders(group)
        if (tally := recorder.total if domain is None else recorder.domains.get(domain))
    ]
    if not tallies:
        return pl.DataFrame()
    ranked = np.mean([np.sort(tally.predicted)[::-1] for tally in tallies], 0)
    level = np.mean([tally.labels.sum() / len(tally.labels) for tally in tallies])
    most = RANKS if domain is None else FEW_RANKS
    at = np.unique(np.linspace(0, len(ranked) - 1, most).round().astype(int))
    return pl.DataFrame({"rank": at + 1, "images": ranked[at], "level": np.full(len(at), level)})


@by_group
def bins(group: Group) -> pl.DataFrame:
    """Twenty bins of confidence, in %, over all images of all seeds."""
    totals = [recorder.total for recorder in _recorders(group)]
    if not totals:
        return pl.DataFrame()
    diagram = reduce(iadd, totals[1:], totals[0]).diagram()
    width = 100 / len(diagram.images)
    low = np.arange(len(diagram.images)) * width
    return pl.DataFrame(
        {
            "bin": [f"{at:g} to {at + width:g} %" for at in low],
            "middle": low + width / 2,
            "share": 100 * diagram.images / diagram.images.sum(),
            "images": diagram.images,
            "confidence": 100 * diagram.confidence,
            "accuracy": diagram.accuracy,
            "entropy": diagram.entropy,
            "few": diagram.images < min(ENOUGH, diagram.images.sum() / 100),
        }
    )


@by_group
def calibration(group: Group) -> pl.DataFrame:
    """Expected calibration error of each method, in %."""
    error = group.number("ece_15")
    if not error:
        return pl.DataFrame()
    known = {"ece": error.value, "std": error.std, "ece_20": group.mean("ece_20")}
    return pl.DataFrame({name: [100 * value] for name, value in known.items()})


# Domain by domain.


@by_group
def by_domain(group: Group) -> pl.DataFrame:
    """Accuracy, entropy, bias and time of a batch, domain by domain, with spread over seeds."""
    times = {run.key: _times(run) for run in group.runs}
    rows = []
    for domain in group.domains:
        numbers = {
            metric: group.number(f"{metric}/{domain}").times(scale)
            for metric, scale in BY_DOMAIN.items()
        }
        for name in ("time", "time_mean"):
            known = {run: taken[domain][name] for run, taken in times.items() if domain in taken}
            numbers[name] = Number.over(known)
        row: dict[str, Any] = {"domain": short(domain)}
        for name, number in numbers.items():
            row |= {name: number.value, f"{name}_std": number.std}
        rows.append(row)
    return pl.DataFrame(rows)


def _times(run: StoredRun) -> dict[str, dict[str, float]]:
    """Time of a batch in ms, by domain, over batches that were not missed: the median, which one
    slow batch cannot move, and the mean, which the paper takes."""
    milliseconds = 1000 * pl.col("time")
    taken = run.batches.filter(~pl.col("missed") & pl.col("time").is_finite())
    of_domains = taken.group_by("domain").agg(
        milliseconds.median().alias("time"), milliseconds.mean().alias("time_mean")
    )
    return {row["domain"]: row for row in of_domains.to_dicts()}


@by_group
def geometry(group: Group) -> pl.DataFrame:
    """Distances and similarities of prototypes along the stream, where runs have an analysis."""
    tables = [run.analysis for run in group.runs if run.analysis is not None]
    if not tables:
        return pl.DataFrame()
    # A stretch is met again in another run by its domain, wherever that comes there.
    again = pl.int_range(pl.len()).over("domain", "visit").alias("again")
    together = pl.concat([table.with_columns(again) for table in tables])
    visits, floats = together["visit"].n_unique() > 1, pl.selectors.float()
    name = pl.col("domain").map_elements(short, pl.String)
    return (
        together.group_by("domain", "visit", "again", maintain_order=True)
        .agg(floats.mean(), floats.std().name.suffix("_std"))
        .with_columns(pl.format("{} {}", name, pl.col("visit") + 1) if visits else name)
        .drop("visit", "again")
    )


# For the page.


def columns(table: pl.DataFrame, places: Mapping[str, int]) -> dict[str, list[Any]]:
    """A table as JSON has it: methods by their places, and six digits of what is not whole."""
    return {
        name: [places[value] if name == "method" else rounded(value) for value in table[name]]
        for name in table.columns
    }


def rounded(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _recorders(group: Group) -> list[Recorder]:
    return [run.recorder for run in group.runs if run.recorder is not None]
