"""What charts are made of: small tables, one row a mark, means over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import iadd
from typing import Any

import numpy as np
import polars as pl

from holdfast.bench.metrics.recorder import Recorder
from holdfast.bench.metrics.tally import Tally
from holdfast.bench.names import short
from holdfast.results.comparison import Comparison
from holdfast.results.group import Group
from holdfast.results.stored import StoredRun

# A page has to stay small: so many points along a stream, and along classes.
POINTS, RANKS, FEW_RANKS = 160, 100, 25
# What fewer images say of a bin is chance, unless there are few in all.
ENOUGH = 10
# More lines than these between domains would hide what they divide.
BOUNDARIES = 40
SEVERAL = "several"

GEOMETRY = ("gap", "intra", "inter", "ratio", "similarity_source", "similarity_target")


def stream(comparison: Comparison) -> pl.DataFrame:
    """Accuracy along the stream: each point is of a few batches of one domain."""
    found = []
    for group in comparison.groups:
        pieces = pl.concat([_pieces(one) for one in group.runs])
        found.append(
            pieces.group_by("segment", "piece", maintain_order=True)
            .agg(
                pl.col("seen").mean(),
                pl.when(pl.col("domain").n_unique() == 1)
                .then(pl.col("domain").first())
                .otherwise(pl.lit(SEVERAL))
                .alias("domain"),
                pl.col("accuracy").mean(),
                pl.col("accuracy").std().alias("std"),
                pl.len().alias("runs"),
            )
            .sort("segment", "piece")
            .select(pl.lit(group.label).alias("method"), pl.exclude("segment", "piece"))
        )
    return pl.concat(found) if found else pl.DataFrame()


def _pieces(stored: StoredRun) -> pl.DataFrame:
    """Cut where the domain changes, and every few batches."""
    few = math.ceil((stored.planned or len(stored.batches)) / POINTS) or 1
    by_segment = stored.batches.with_columns(
        (pl.col("domain").rle_id()).alias("segment"),
        pl.col("images").cum_sum().alias("seen"),
    ).with_columns((pl.int_range(pl.len()).over("segment") // few).alias("piece"))
    return (
        by_segment.group_by("segment", "piece", maintain_order=True)
        .agg(
            # The middle of the piece, so that it stands within its domain.
            (pl.col("seen").last() / 2 + (pl.col("seen") - pl.col("images")).first() / 2).alias(
                "seen"
            ),
            pl.col("domain").first().map_elements(short, pl.String),
            (100 * pl.col("correct").sum() / pl.col("scored").sum()).alias("accuracy"),
        )
        .filter(pl.col("accuracy").is_finite())
    )


def boundaries(comparison: Comparison) -> pl.DataFrame:
    """Where domains begin and end, or visits where domains are many; empty where runs differ."""
    tables = [one.batches for one in comparison.runs if len(one.batches)]
    for key, name in (("domain", "{}"), ("visit", "visit {}")):
        found = [_stretches(table, key) for table in tables]
        longest = max(found, key=lambda one: one["end"].max() or 0, default=None)
        if longest is None or not 1 < len(longest) <= BOUNDARIES:
            continue
        # A run that goes on ends early; the others have to agree.
        agree = all(
            one["what"].equals(longest["what"].head(len(one)))
            and one["end"].head(len(one) - 1).equals(longest["end"].head(len(one) - 1))
            for one in found
        )
        if agree:
            names = [short(what) if key == "domain" else int(what) + 1 for what in longest["what"]]
            return longest.select(
                pl.Series("domain", [name.format(one) for one in names]),
                "start",
                "end",
                ((pl.col("start") + pl.col("end")) / 2).alias("middle"),
            )
    return pl.DataFrame()


def _stretches(table: pl.DataFrame, key: str) -> pl.DataFrame:
    seen = table.with_columns(pl.col("images").cum_sum().alias("end"))
    return (
        seen.group_by(pl.col(key).rle_id().alias("segment"), maintain_order=True)
        .agg(
            pl.col(key).first().cast(pl.String).alias("what"),
            (pl.col("end").first() - pl.col("images").first()).alias("start"),
            pl.col("end").last(),
        )
        .drop("segment")
    )


def alarms(comparison: Comparison) -> pl.DataFrame:
    """Where predictions fell into a few classes."""
    rows = []
    for group in comparison.groups:
        for stored in group.runs:
            batch = stored.metric("collapse")
            if math.isnan(batch):
                continue
            until = stored.batches.filter(pl.col("batch") <= int(batch))
            last = until.tail(1)
            rows.append(
                {
                    "method": group.label,
                    "run": group.which(stored),
                    "batch": int(batch),
                    "seen": int(until["images"].sum()),
                    "domain": short(last["domain"].item()) if len(last) else "unknown",
                }
            )
    return pl.DataFrame(rows)


def ranks(comparison: Comparison, domain: str | None = None) -> pl.DataFrame:
    """How many images each class was predicted for, most often first, and the true level: the
    mean over classes. Of one domain or of all."""
    found = []
    for group in comparison.groups:
        tallies = [tally for one in _recorders(group) if (tally := _tally(one, domain))]
        if not tallies:
            continue
        ranked = np.mean([np.sort(one.predicted)[::-1] for one in tallies], 0)
        level = float(np.mean([one.labels.sum() / len(one.labels) for one in tallies]))
        most = RANKS if domain is None else FEW_RANKS
        at = np.unique(np.linspace(0, len(ranked) - 1, most).round().astype(int))
        found.append(
            pl.DataFrame(
                {
                    "method": [group.label] * len(at),
                    "rank": at + 1,
                    "images": ranked[at],
                    "level": [level] * len(at),
                }
            )
        )
    return pl.concat(found) if found else pl.DataFrame()


def _tally(recorder: Recorder, domain: str | None) -> Tally | None:
    return recorder.total if domain is None else recorder.domains.get(domain)


def bins(comparison: Comparison) -> pl.DataFrame:
    """Twenty bins of confidence, in %, over all images of all seeds."""
    found = []
    for group in comparison.groups:
        totals = [one.total for one in _recorders(group)]
        if not totals:
            continue
        diagram = reduce(iadd, totals[1:], totals[0]).diagram()
        width = 100 / len(diagram.images)
        enough = min(ENOUGH, diagram.images.sum() / 100)
        middle = (np.arange(len(diagram.images)) + 0.5) * width
        table = pl.DataFrame(
            {
                "method": [group.label] * len(middle),
                "bin": [f"{one - width / 2:g} to {one + width / 2:g} %" for one in middle],
                "middle": middle,
                "share": 100 * diagram.images / diagram.images.sum(),
                "images": diagram.images,
                "confidence": 100 * diagram.confidence,
                "accuracy": diagram.accuracy,
                "entropy": diagram.entropy,
                "few": diagram.images < enough,
            }
        )
        found.append(table.with_columns(pl.selectors.float().fill_nan(None)))
    return pl.concat(found) if found else pl.DataFrame()


# Figures by domain: what they are called in a summary, and what a unit of them is on the page.
BY_DOMAIN = {"accuracy": 1.0, "entropy": 1.0, "bias": 100.0}


def by_domain(comparison: Comparison) -> pl.DataFrame:
    """Accuracy, entropy, bias and time of a batch, domain by domain, with spread over seeds."""
    rows = []
    for group in comparison.groups:
        times = [_times(one) for one in group.runs]
        for domain in group.domains:
            row: dict[str, Any] = {"method": group.label, "domain": short(domain)}
            for figure, scale in BY_DOMAIN.items():
                row[figure] = _null(scale * group.mean(f"{figure}/{domain}"))
                row[f"{figure}_std"] = _null(scale * group.std(f"{figure}/{domain}"))
            taken = [one[domain] for one in times if domain in one]
            for place, name in enumerate(("time", "time_mean")):
                values = [one[place] for one in taken]
                row[name] = float(np.mean(values)) if values else None
                row[f"{name}_std"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
            rows.append(row)
    names = (*BY_DOMAIN, "time", "time_mean")
    floats = [name for key in names for name in (key, f"{key}_std")]
    schema = {"method": pl.String, "domain": pl.String, **dict.fromkeys(floats, pl.Float64)}
    return pl.DataFrame(rows, schema=schema)


def _times(stored: StoredRun) -> dict[str, tuple[float, float]]:
    """Time of a batch in ms, over batches that were not missed: the median, which one slow batch
    cannot move, and the mean, which the paper takes."""
    taken = stored.batches.filter(~pl.col("missed") & pl.col("time").is_finite())
    found = taken.group_by("domain", maintain_order=True).agg(
        (1000 * pl.col("time").median()).alias("median"),
        (1000 * pl.col("time").mean()).alias("mean"),
    )
    return {domain: (median, mean) for domain, median, mean in found.iter_rows()}


def geometry(comparison: Comparison) -> pl.DataFrame:
    """Distances and similarities of prototypes along the stream, where runs have an analysis."""
    found = []
    for group in comparison.groups:
        tables = [one.analysis for one in group.runs if one.analysis is not None]
        if not tables:
            continue
        # A stretch is met again in another run by its domain, wherever that comes there.
        stretch = ("domain", "visit", "again")
        again = pl.int_range(pl.len()).over("domain", "visit").alias("again")
        together = pl.concat([one.with_columns(again) for one in tables])
        visits = together["visit"].n_unique() > 1
        found.append(
            together.group_by(stretch, maintain_order=True)
            .agg(
                *(pl.col(name).mean() for name in GEOMETRY),
                *(pl.col(name).std().alias(f"{name}_std") for name in GEOMETRY),
            )
            .select(
                pl.lit(group.label).alias("method"),
                pl.struct("domain", "visit").map_elements(_placed(visits), pl.String),
                *GEOMETRY,
                *(f"{name}_std" for name in GEOMETRY),
            )
        )
    return pl.concat(found) if found else pl.DataFrame()


def _placed(visits: bool) -> Callable[[dict[str, Any]], str]:
    def place(at: dict[str, Any]) -> str:
        return short(at["domain"]) + (f" {at['visit'] + 1}" if visits else "")

    return place


def calibration(comparison: Comparison) -> pl.DataFrame:
    """Expected calibration error of each method, in %."""
    return pl.DataFrame(
        [
            {
                "method": group.label,
                "ece": _null(100 * group.mean("ece_15")),
                "std": _null(100 * group.std("ece_15")),
                "ece_20": _null(100 * group.mean("ece_20")),
            }
            for group in comparison.groups
        ],
        schema={
            "method": pl.String,
            **dict.fromkeys(("ece", "std", "ece_20"), pl.Float64),
        },
    ).drop_nulls("ece")


def order(domains: Iterable[str]) -> list[str]:
    """Short names, as axes have them."""
    return [short(name) for name in domains]


def columns(table: pl.DataFrame, labels: Sequence[str]) -> dict[str, list[Any]]:
    """A table as JSON has it: methods by number, and six digits of what is not whole."""
    number = {label: place for place, label in enumerate(labels)}
    found: dict[str, list[Any]] = {}
    for name in table.columns:
        values = table[name].to_list()
        found[name] = (
            [number[one] for one in values] if name == "method" else list(_rounded(values))
        )
    return found


def _rounded(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if not isinstance(value, float):
            yield value
        elif math.isfinite(value):
            yield float(f"{value:.6g}")
        else:
            yield None


def _recorders(group: Group) -> list[Recorder]:
    return [one.recorder for one in group.runs if one.recorder is not None]


def _null(value: float) -> float | None:
    return value if math.isfinite(value) else None
