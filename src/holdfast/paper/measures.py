"""What is read off a finished run: figures by column, by domain or by bin, with what sums them up.

Accuracy and shares are in %, entropy in nats, time in ms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import fmean
from typing import Any

import polars as pl

from holdfast.bench.metrics.recorder import Recorder, Tally
from holdfast.bench.plan import Run
from holdfast.bench.store import RunFolder
from holdfast.data.readers.layouts import CLEAN
from holdfast.paper.published import PublishedRow
from holdfast.results.results import read_run

SIXTEEN, FIFTEEN = "mean 16", "mean 15"
BINS = tuple(f"{number / 20:.2f}" for number in range(20))
"""Lower edges of the paper's bins of confidence."""

# Where on the way from the class that is predicted most to that predicted least one looks.
RANKS = {"most": 0.0, "10 %": 0.1, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "90 %": 0.9}


@dataclass(frozen=True)
class Finished:
    """A finished run; what has to be rebuilt from its rows is, when it is asked for."""

    folder: RunFolder

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return self.folder.manifest

    @cached_property
    def run(self) -> Run:
        return read_run(self.manifest)

    @cached_property
    def recorder(self) -> Recorder:
        recorder = Recorder(self.manifest["classes"])
        for seen in self.folder.seen():
            recorder.update(seen)
        return recorder

    def figure(self, name: str) -> float:
        """As `Recorder.summary` names it; NaN where it is not known."""
        value = self.manifest["figures"].get(name)
        return math.nan if value is None else float(value)

    def by_domain(self, name: str) -> dict[str, float]:
        """A figure of every domain, in the order in which they came."""
        prefix = f"{name}/"
        found = (key for key in self.manifest["figures"] if key.startswith(prefix))
        return {key.removeprefix(prefix): self.figure(key) for key in found}


Read = Callable[[Finished], dict[str, float]]


@dataclass(frozen=True)
class Measure:
    """One table's worth of figures of a run."""

    title: str
    read: Read
    """By column."""
    summary: tuple[str, ...]
    """The columns that sum up the others."""
    digits: int = 2
    printed: Callable[[PublishedRow], dict[str, float]] = lambda row: {}
    """The same of a published row, as far as it gives them."""
    gains: bool = False
    """Whether more of it is better."""


def _accuracy(run: Finished) -> dict[str, float]:
    return {**run.by_domain("accuracy"), **_means(run)}


def _means(run: Finished) -> dict[str, float]:
    return {
        SIXTEEN: run.figure("mean_accuracy"),
        FIFTEEN: run.figure("mean_accuracy_corrupted"),
    }


def _one_mean(which: str, run: Finished) -> dict[str, float]:
    return {which: _means(run)[which]}


def _printed_means(row: PublishedRow) -> dict[str, float]:
    corrupted = [value for domain, value in row.by_domain.items() if domain != CLEAN]
    return {SIXTEEN: row.mean, **({FIFTEEN: fmean(corrupted)} if corrupted else {})}


def _printed_accuracy(row: PublishedRow) -> dict[str, float]:
    return {**row.by_domain, **_printed_means(row)}


def _printed_mean(row: PublishedRow) -> dict[str, float]:
    return {SIXTEEN: row.mean}


def _time(run: Finished) -> dict[str, float]:
    """The mean over a domain's batches, as the paper takes it, and what one slow batch cannot
    move."""
    taken = run.folder.rows.filter(~pl.col("missed")).select("domain", pl.col("time") * 1000)
    found = taken.group_by("domain", maintain_order=True).mean()
    return {
        **dict(zip(found["domain"], found["time"], strict=True)),
        "mean": fmean(taken["time"]),
        "median": 1000 * run.figure("time_median"),
        "p95": 1000 * run.figure("time_p95"),
    }


def _geometry(name: str, run: Finished) -> dict[str, float]:
    table = run.folder.analysis
    if table is None:
        raise ValueError(f"{run.folder.path} was run without --analysis.")
    pairs = zip(table["domain"], table[name], strict=True)
    return _with_mean({domain: math.nan if v is None else v for domain, v in pairs})


def _entropy(run: Finished) -> dict[str, float]:
    return _with_mean(run.by_domain("entropy"))


def _bias(run: Finished) -> dict[str, float]:
    return _with_mean({name: 100 * value for name, value in run.by_domain("bias").items()})


def _with_mean(values: Mapping[str, float]) -> dict[str, float]:
    return {**values, "mean": fmean(values.values())}


def _ece(run: Finished) -> dict[str, float]:
    return {
        "20 bins": 100 * run.figure("ece_20"),
        "15 bins": 100 * run.figure("ece_15"),
        "mean confidence": 100 * run.figure("confidence"),
        "accuracy": run.figure("accuracy"),
    }


def _accuracy_by_confidence(run: Finished) -> dict[str, float]:
    return dict(zip(BINS, run.recorder.total.diagram().accuracy.tolist(), strict=True))


def _entropy_by_confidence(run: Finished) -> dict[str, float]:
    return dict(zip(BINS, run.recorder.total.diagram().entropy.tolist(), strict=True))


def _confidence(run: Finished) -> dict[str, float]:
    images = run.recorder.total.diagram().images
    shares = (100 * images / images.sum()).tolist()
    return {
        **dict(zip(BINS, shares, strict=True)),
        "above 0.95": 100 * run.figure("share_above_0.95"),
    }


def by_rank(tally: Tally) -> list[float]:
    """How often each class is predicted, most often first; 1: as often as classes are there on
    average, which is the dotted line of the paper's figures."""
    fair = tally.labels.sum() / len(tally.labels)
    return sorted((tally.predicted / fair).tolist(), reverse=True)


def _predicted(run: Finished) -> dict[str, float]:
    total = run.recorder.total
    ranked = by_rank(total)
    return {
        **{name: ranked[round(share * (len(ranked) - 1))] for name, share in RANKS.items()},
        "least": ranked[-1],
        "never": float((total.predicted == 0).sum()),
        "bias": 100 * total.bias,
    }


def _favourite(run: Finished) -> dict[str, float]:
    return _with_mean({name: by_rank(one)[0] for name, one in run.recorder.domains.items()})


def _never(run: Finished) -> dict[str, float]:
    domains = run.recorder.domains.items()
    return _with_mean({name: float((one.predicted == 0).sum()) for name, one in domains})


MEAN = ("mean",)
CLASS = "as a multiple of the average number of images of a class"
BIAS = "the share of predictions to change for each class to come as often as it is there, %"
MEASURES = {
    "accuracy": Measure(
        "Accuracy, %", _accuracy, (SIXTEEN, FIFTEEN), printed=_printed_accuracy, gains=True
    ),
    "means": Measure(
        "Mean accuracy, %", _means, (SIXTEEN, FIFTEEN), printed=_printed_means, gains=True
    ),
    SIXTEEN: Measure(
        "Mean accuracy over 16 domains by batch size, %",
        partial(_one_mean, SIXTEEN),
        (SIXTEEN,),
        printed=_printed_mean,
        gains=True,
    ),
    FIFTEEN: Measure(
        "Mean accuracy over the 15 corruptions by batch size, %",
        partial(_one_mean, FIFTEEN),
        (FIFTEEN,),
        gains=True,
    ),
    "time": Measure("Time of a batch, ms", _time, ("mean", "median", "p95"), 1),
    "gap": Measure("Gap between source and target", partial(_geometry, "gap"), MEAN, 3),
    "intra": Measure("Distance within classes", partial(_geometry, "intra"), MEAN, 3),
    "inter": Measure("Distance between classes", partial(_geometry, "inter"), MEAN, 3),
    "ratio": Measure("Ratio of the two, within / between", partial(_geometry, "ratio"), MEAN, 3),
    "to source": Measure("Cosine of P^t and P^s", partial(_geometry, "similarity_source"), MEAN, 3),
    "to target": Measure(
        "Cosine of P^t and P^t*", partial(_geometry, "similarity_target"), MEAN, 3
    ),
    "entropy": Measure("Mean entropy, nats", _entropy, MEAN, 3),
    "ece": Measure(
        "Expected calibration error, and what it is made of, %",
        _ece,
        ("20 bins", "15 bins", "mean confidence", "accuracy"),
    ),
    "accuracy by confidence": Measure(
        "Accuracy in bins of confidence, each from the value above it on, %",
        _accuracy_by_confidence,
        (),
        1,
    ),
    "entropy by confidence": Measure(
        "Mean entropy in bins of confidence, nats", _entropy_by_confidence, (), 2
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
    "bias": Measure(
        f"Bias, {BIAS}",
        _bias,
        MEAN,
    ),
    "favourite": Measure(f"How often the favourite class is predicted, {CLASS}", _favourite, MEAN),
    "never": Measure("How many classes are never predicted", _never, MEAN, 1),
}
