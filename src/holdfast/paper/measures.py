"""What the paper reads off a run: metrics by column, by domain or by bin, with what sums them up.

Accuracy and shares are in %, entropy in nats, time in ms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import polars as pl

from holdfast.bench.metrics.tally import Tally
from holdfast.data.readers.layouts import CLEAN
from holdfast.paper.published import PublishedRow
from holdfast.results.stored import StoredRun

SIXTEEN, FIFTEEN = "mean 16", "mean 15"
BINS = tuple(f"{number / 20:.2f}" for number in range(20))
"""Lower edges of the paper's bins of confidence."""

# Positions in the list of classes from the most to the least predicted, as shares of its length.
RANKS = {"most": 0.0, "10 %": 0.1, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "90 %": 0.9}

ByColumn = dict[str, float]


@dataclass(frozen=True)
class Measure:
    """One table's worth of metrics of a run."""

    title: str
    read: Callable[[StoredRun], ByColumn]
    summary: tuple[str, ...] = ("mean",)
    """The columns that sum up the others."""
    digits: int = 2
    printed: Callable[[PublishedRow], ByColumn] = lambda row: {}
    """The same of a published row, as far as it gives them."""
    gains: bool = False
    """Whether more of it is better."""


# Accuracy, ours and printed.


def _means(run: StoredRun) -> ByColumn:
    means = {SIXTEEN: "mean_accuracy", FIFTEEN: "mean_accuracy_corrupted"}
    return {column: run.metric(name) for column, name in means.items()}


def printed_means(row: PublishedRow) -> ByColumn:
    corrupted = [value for domain, value in row.by_domain.items() if domain != CLEAN]
    return {SIXTEEN: row.mean, **({FIFTEEN: fmean(corrupted)} if corrupted else {})}


# By domain.


def _with_mean(values: Mapping[str, float]) -> ByColumn:
    return {**values, "mean": fmean(values.values())}


def _metric(name: str, run: StoredRun, *, scale: float = 1) -> ByColumn:
    return _with_mean({domain: scale * v for domain, v in run.by_domain(name).items()})


def _time(run: StoredRun) -> ByColumn:
    """The mean over a domain's batches, as the paper takes it, and what one slow batch cannot
    move."""
    taken = run.batches.filter(~pl.col("missed")).select("domain", pl.col("time") * 1000)
    means = taken.group_by("domain", maintain_order=True).mean()
    return {
        **dict(means.iter_rows()),
        "mean": fmean(taken["time"]),
        "median": 1000 * run.metric("time_median"),
        "p95": 1000 * run.metric("time_p95"),
    }


def _geometry(name: str, run: StoredRun) -> ByColumn:
    table = run.analysis
    if table is None:
        raise ValueError(f"{run.path} was run without --analysis.")
    values = table.select("domain", pl.col(name).fill_null(math.nan))
    return _with_mean(dict(values.iter_rows()))


def _tallies(of: Callable[[Tally], float], run: StoredRun) -> ByColumn:
    return _with_mean({name: of(tally) for name, tally in run.replay.recorder.domains.items()})


# Over all domains.


def _ece(run: StoredRun) -> ByColumn:
    return {
        "20 bins": 100 * run.metric("ece_20"),
        "15 bins": 100 * run.metric("ece_15"),
        "mean confidence": 100 * run.metric("confidence"),
        "accuracy": run.metric("accuracy"),
    }


def _by_confidence(name: str, run: StoredRun) -> ByColumn:
    values = getattr(run.replay.recorder.total.diagram(), name)
    return dict(zip(BINS, values.tolist(), strict=True))


def _confidence(run: StoredRun) -> ByColumn:
    images = _by_confidence("images", run)
    whole = sum(images.values())
    shares = {name: 100 * count / whole for name, count in images.items()}
    return {**shares, "above 0.95": 100 * run.metric("share_above_0.95")}


def by_rank(tally: Tally) -> list[float]:
    """How often each class is predicted, most often first; 1: as often as classes are there on
    average, which is the dotted line of the paper's figures."""
    fair = tally.labels.sum() / len(tally.labels)
    return sorted((tally.predicted / fair).tolist(), reverse=True)


def _never(tally: Tally) -> float:
    return float((tally.predicted == 0).sum())


def _predicted(run: StoredRun) -> ByColumn:
    total = run.replay.recorder.total
    ranked = by_rank(total)
    return {
        **{name: ranked[round(share * (len(ranked) - 1))] for name, share in RANKS.items()},
        "least": ranked[-1],
        "never": _never(total),
        "bias": 100 * total.bias,
    }


CLASS = "as a multiple of the average number of images of a class"
BIAS = "the share of predictions to change for each class to come as often as it is there, %"
# Those that need an analysis.
GEOMETRY = {
    name: Measure(title, partial(_geometry, column), digits=3)
    for name, column, title in (
        ("gap", "gap", "Gap between source and target"),
        ("intra", "intra", "Distance within classes"),
        ("inter", "inter", "Distance between classes"),
        ("ratio", "ratio", "Ratio of the two, within / between"),
        ("to source", "similarity_source", "Cosine of P^t and P^s"),
        ("to target", "similarity_target", "Cosine of P^t and P^t*"),
    )
}
MEASURES = {
    "accuracy": Measure(
        "Accuracy, %",
        lambda run: {**run.by_domain("accuracy"), **_means(run)},
        (SIXTEEN, FIFTEEN),
        printed=lambda row: {**row.by_domain, **printed_means(row)},
        gains=True,
    ),
    "means": Measure(
        "Mean accuracy, %", _means, (SIXTEEN, FIFTEEN), printed=printed_means, gains=True
    ),
    SIXTEEN: Measure(
        "Mean accuracy over 16 domains by batch size, %",
        lambda run: {SIXTEEN: run.metric("mean_accuracy")},
        (SIXTEEN,),
        printed=lambda row: {SIXTEEN: row.mean},
        gains=True,
    ),
    FIFTEEN: Measure(
        "Mean accuracy over the 15 corruptions by batch size, %",
        lambda run: {FIFTEEN: run.metric("mean_accuracy_corrupted")},
        (FIFTEEN,),
        gains=True,
    ),
    "time": Measure("Time of a batch, ms", _time, ("mean", "median", "p95"), 1),
    **GEOMETRY,
    "entropy": Measure("Mean entropy, nats", partial(_metric, "entropy"), digits=3),
    "ece": Measure(
        "Expected calibration error, and what it is made of, %",
        _ece,
        ("20 bins", "15 bins", "mean confidence", "accuracy"),
    ),
    "accuracy by confidence": Measure(
        "Accuracy in bins of confidence, each from the value above it on, %",
        partial(_by_confidence, "accuracy"),
        (),
        1,
    ),
    "entropy by confidence": Measure(
        "Mean entropy in bins of confidence, nats", partial(_by_confidence, "entropy"), ()
    ),
    "predicted": Measure(
        f"How often classes are predicted, from the most often on, {CLASS}; how many never are; "
        f"and bias, {BIAS}",
        _predicted,
        (*RANKS, "least", "never", "bias"),
    ),
    "confidence": Measure(
        "Share of predictions in bins of confidence, %", _confidence, ("above 0.95",), 1
    ),
    "bias": Measure(f"Bias, {BIAS}", partial(_metric, "bias", scale=100)),
    "favourite": Measure(
        f"How often the favourite class is predicted, {CLASS}",
        partial(_tallies, lambda tally: by_rank(tally)[0]),
    ),
    "never": Measure("How many classes are never predicted", partial(_tallies, _never), digits=1),
}
