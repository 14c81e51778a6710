"""The paper's experiments, as data: every table and every figure that holds numbers.

Figure 2 is missing: it is a drawing of the method.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from holdfast.paper.published import (
    Benchmark,
    PublishedFigure,
    PublishedTable,
    published,
    published_figures,
)
from holdfast.recipes.compose import compose
from holdfast.util.words import listed, nearest


@dataclass(frozen=True)
class Line:
    """One method of an experiment. Lines with one label stand in one row of its table."""

    label: str
    """As the paper writes it."""
    method: str
    """The same as a spec string."""
    batch: int | None = None
    """Images in a batch, where the experiment varies them: the column it stands in."""


@dataclass(frozen=True)
class Experiment:
    """What is run, and what is shown of it."""

    id: str
    where: str
    """In the paper."""
    asks: str
    published: str
    """Id of its table or figure among the published numbers."""
    lines: tuple[Line, ...]
    measures: tuple[str, ...]
    """What is read off the runs: names in `measures.MEASURES`, a table each."""
    rows: str = "method"
    """What its rows are."""
    orders: int = 0
    """How many random orders of the domains; 0: the paper's order."""
    analysis: bool = False
    """Whether it needs the geometry of features."""
    note: str = ""

    @cached_property
    def printed(self) -> PublishedTable | PublishedFigure:
        found = published().get(self.published)
        return published_figures()[self.published] if found is None else found

    @property
    def benchmark(self) -> Benchmark:
        return self.printed.benchmark

    @property
    def finding(self) -> str:
        """What the paper's text says of it; empty of tables, which say it themselves."""
        return self.printed.finding if isinstance(self.printed, PublishedFigure) else ""

    @property
    def stream(self) -> str:
        return "continual(order=random)" if self.orders else "continual"

    @property
    def streams(self) -> tuple[str, ...]:
        """One for each order."""
        if not self.orders:
            return (self.stream,)
        return tuple(f"continual(order=random,order_seed={k})" for k in range(self.orders))

    def host_of(self, line: Line) -> Line | None:
        """The line that this one adds its last plug-in to, whatever their settings."""
        wanted = _names(line.method)[:-1]
        return next((one for one in self.lines if wanted and _names(one.method) == wanted), None)


def _names(method: str) -> tuple[str, ...]:
    return tuple(one.name for one in compose(method).methods)


def _table(
    id: str, where: str, asks: str, published_as: str = "", measure: str = "accuracy", **others: Any
) -> Experiment:
    """A table of the paper: every row of it is run."""
    rows = published()[published_as or id].rows
    lines = tuple(Line(row.label, row.method) for row in rows)
    return Experiment(id, where, asks, published_as or id, lines, (measure,), **others)


def _sweep(setting: str, values: Iterable[float], on: str = "eata+debias") -> tuple[Line, ...]:
    """A line for each value of a setting of the last method."""
    return tuple(Line(f"{value:g}", f"{on}({setting}={value:g})") for value in values)


EATA, OURS = Line("EATA", "eata"), Line("EATA + Ours", "eata+debias")
PAIR = (EATA, OURS)
TIMED = {
    "TTAC": "ttac",
    "Ours-Only": "debias",
    "EATA": "eata",
    "EATA + Ours": "eata+debias",
    "CoTTA": "cotta",
    "CoTTA + Ours": "cotta+debias",
    "RMT": "rmt",
    "RMT + Ours": "rmt+debias",
}


@cache
def experiments() -> dict[str, Experiment]:
    """All of them by id, the main tables first."""
    return {one.id: one for one in (*_of_the_text(), *_of_the_appendix())}


def _of_the_text() -> Iterator[Experiment]:
    asks = "How accurate is each method on {}, domain after domain?"
    yield _table("table-imagenet", "Table 1", asks.format("ImageNet-C"))
    yield _table("table-cifar100", "Table 2", asks.format("CIFAR100-C"))
    yield Experiment(
        "time",
        "Figure 3",
        "How long does a batch take, domain by domain?",
        "adaptation-time",
        tuple(Line(label, method) for label, method in TIMED.items()),
        ("time",),
        note="The paper's times are those of an RTX 3090, ours those of the machine above.",
    )
    yield _table(
        "random-order",
        "Table 3",
        "Does the order of the domains matter?",
        measure="means",
        orders=3,
        note="Which three orders the paper drew is not known; ± is over orders and seeds.",
    )
    yield _table(
        "ablation", "Table 4", "What does each component add?", "components", measure="means"
    )
    sizes = published_figures()["batch-size"].batch_sizes
    yield Experiment(
        "batch-size",
        "Figure 4 (a)",
        "How small may batches be?",
        "batch-size",
        tuple(Line(line.label, line.method, batch) for line in PAIR for batch in sizes),
        ("mean 16", "mean 15"),
    )
    yield Experiment(
        "alpha",
        "Figure 4 (b)",
        "How slowly should target prototypes move?",
        "alpha",
        (EATA, *_sweep("alpha", (0.9, 0.96, 0.99, 0.996, 0.999))),
        ("means",),
        rows="α",
    )
    yield Experiment(
        "lambda-ema",
        "Figure 4 (c)",
        "How much should L_ema weigh on EATA?",
        "lambda-ema",
        (EATA, *_sweep("lambda_ema", (1, 2, 3, 4, 5))),
        ("means",),
        rows="λ_ema",
        note="The paper's text names no value of the figure but 2: these are Table 6's.",
    )
    yield Experiment(
        "lambda-src",
        "Figure 4 (d)",
        "How much should L_src weigh on EATA?",
        "lambda-src",
        (EATA, *_sweep("lambda_src", (10, 20, 30, 40, 50, 60, 70))),
        ("means",),
        rows="λ_src",
        note="The paper's text names no value of the figure but 50: these are Table 7's.",
    )
    yield Experiment(
        "distances",
        "Figure 5",
        "How far are features from the source's, from their class's and from other classes'?",
        "feature-distances",
        PAIR,
        ("gap", "intra", "inter", "ratio"),
        analysis=True,
    )
    yield Experiment(
        "prototypes",
        "Figures 6 (a) and 7",
        "How like the source's prototypes P^s and the true ones P^t* are the target's P^t?",
        "prototype-similarity",
        (OURS,),
        ("to source", "to target"),
        analysis=True,
    )
    yield Experiment(
        "entropy",
        "Figure 6 (b)",
        "How large is the entropy of predictions, domain by domain?",
        "calibration",
        PAIR,
        ("entropy",),
    )
    yield Experiment(
        "calibration",
        "Figure 6 (c) and (d)",
        "Is confidence what accuracy is, and how large is entropy at each confidence?",
        "calibration",
        PAIR,
        ("ece", "accuracy by confidence", "entropy by confidence"),
    )
    yield Experiment(
        "bias",
        "Figure 1",
        "How often is each class predicted over all domains, and how confidently?",
        "prediction-bias",
        PAIR,
        ("means", "predicted", "confidence"),
    )
    yield Experiment(
        "bias-by-domain",
        "Figure 8",
        "How often is each class predicted, domain by domain?",
        "prediction-bias-by-domain",
        PAIR,
        ("bias", "favourite", "never"),
    )


def _of_the_appendix() -> Iterator[Experiment]:
    yield _table(
        "consistency",
        "Table 5",
        "What does a consistency loss add, under strong augmentation and under CoTTA's?",
        note="The paper does not give the weight of L_cons; here it is 1. See lambda-cons.",
    )
    yield Experiment(
        "lambda-cons",
        "none: what Table 5 leaves open",
        "How much should L_cons weigh on EATA + Ours?",
        "consistency",
        (OURS, *_sweep("lambda_cons", (0.1, 0.3, 1, 3), on="eata+debias+consistency")),
        ("means",),
        rows="λ_cons",
        note="The published number stands beside 1, though the paper does not give its weight.",
    )
    for number, weight in ((6, "ema"), (7, "src")):
        asks = f"How much should L_{weight} weigh without a host?"
        id = f"lambda-{weight}-alone"
        yield _table(id, f"Table {number}", asks, measure="means", rows=f"λ_{weight}")
    yield _table("labels", "Table 8", "Hard or soft pseudo-labels in L_ema?")
    yield _table(
        "cotta-output",
        "Table 9",
        "Whose prediction should leave CoTTA + Ours: the teacher's or the student's?",
    )


def find_experiment(id: str) -> Experiment:
    known = experiments()
    if id not in known:
        raise ValueError(
            f"There is no experiment {id!r}.{nearest(id, known)} Experiments: {listed(known, 99)}."
        )
    return known[id]
