"""The paper's experiments, as data: every table and every figure that holds numbers.

Figure 2 is missing: it is a drawing of the method.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from holdfast.paper.measures import GEOMETRY
from holdfast.paper.published import Benchmark, Published, published, published_figures
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
    printed: Published
    """What the paper says of it."""
    lines: tuple[Line, ...]
    measures: tuple[str, ...]
    """What is read off the runs: names in `measures.MEASURES`, a table each."""
    rows: str = "method"
    """What its rows are."""
    orders: int = 0
    """How many random orders of the domains; 0: the paper's order."""

    @property
    def asks(self) -> str:
        return ASKS[self.id]

    @property
    def note(self) -> str:
        return NOTES.get(self.id, "")

    @property
    def analysis(self) -> bool:
        """Whether it needs the geometry of features."""
        return not GEOMETRY.keys().isdisjoint(self.measures)

    @property
    def benchmark(self) -> Benchmark:
        return self.printed.benchmark

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
        return next((host for host in self.lines if wanted and _names(host.method) == wanted), None)


def _names(method: str) -> tuple[str, ...]:
    return tuple(part.name for part in compose(method).methods)


ASKS = {
    "table-imagenet": "How accurate is each method on ImageNet-C, domain after domain?",
    "table-cifar100": "How accurate is each method on CIFAR100-C, domain after domain?",
    "time": "How long does a batch take, domain by domain?",
    "random-order": "Does the order of the domains matter?",
    "ablation": "What does each component add?",
    "batch-size": "How small may batches be?",
    "alpha": "How slowly should target prototypes move?",
    "lambda-ema": "How much should L_ema weigh on EATA?",
    "lambda-src": "How much should L_src weigh on EATA?",
    "distances": "How far are features from the source's, from their class's and from other "
    "classes'?",
    "prototypes": "How like the source's prototypes P^s and the true ones P^t* are the target's "
    "P^t?",
    "entropy": "How large is the entropy of predictions, domain by domain?",
    "calibration": "Is confidence what accuracy is, and how large is entropy at each confidence?",
    "bias": "How often is each class predicted over all domains, and how confidently?",
    "bias-by-domain": "How often is each class predicted, domain by domain?",
    "consistency": "What does a consistency loss add, under strong augmentation and under CoTTA's?",
    "lambda-cons": "How much should L_cons weigh on EATA + Ours?",
    "lambda-ema-alone": "How much should L_ema weigh without a host?",
    "lambda-src-alone": "How much should L_src weigh without a host?",
    "labels": "Hard or soft pseudo-labels in L_ema?",
    "cotta-output": "Whose prediction should leave CoTTA + Ours: the teacher's or the student's?",
}
NOTES = {
    "time": "The paper's times are those of an RTX 3090, ours those of the machine above.",
    "random-order": "Which three orders the paper drew is not known; ± is over orders and seeds.",
    "lambda-ema": "The paper's text names no value of the figure but 2: these are Table 6's.",
    "lambda-src": "The paper's text names no value of the figure but 50: these are Table 7's.",
    "consistency": "The paper does not give the weight of L_cons; here it is 1. See lambda-cons.",
    "lambda-cons": "The published number stands beside 1, though the paper does not give its "
    "weight.",
}


EATA, OURS = Line("EATA", "eata"), Line("EATA + Ours", "eata+debias")


@cache
def experiments() -> dict[str, Experiment]:
    """All of them by id, the main tables first."""
    return {experiment.id: experiment for experiment in _experiments()}


def _experiments() -> Iterator[Experiment]:
    yield _experiment("table-imagenet", "Table 1")
    yield _experiment("table-cifar100", "Table 2")
    yield _experiment("time", "Figure 3", ["time"], "adaptation-time")
    yield _experiment("random-order", "Table 3", ["means"], orders=3)
    yield _experiment("ablation", "Table 4", ["means"], "components")
    yield _experiment("batch-size", "Figure 4 (a)", ["mean 16", "mean 15"])
    yield _sweep("alpha", "Figure 4 (b)", "α", [0.9, 0.96, 0.99, 0.996, 0.999])
    yield _sweep("lambda-ema", "Figure 4 (c)", "λ_ema", [1, 2, 3, 4, 5])
    yield _sweep("lambda-src", "Figure 4 (d)", "λ_src", [10, 20, 30, 40, 50, 60, 70])
    distances = ["gap", "intra", "inter", "ratio"]
    yield _experiment("distances", "Figure 5", distances, "feature-distances")
    similarities = ["to source", "to target"]
    yield _experiment("prototypes", "Figures 6 (a) and 7", similarities, "prototype-similarity")
    yield _experiment("entropy", "Figure 6 (b)", ["entropy"], "calibration")
    by_confidence = ["ece", "accuracy by confidence", "entropy by confidence"]
    yield _experiment("calibration", "Figure 6 (c) and (d)", by_confidence)
    biases = ["means", "predicted", "confidence"]
    yield _experiment("bias", "Figure 1", biases, "prediction-bias")
    biases = ["bias", "favourite", "never"]
    yield _experiment("bias-by-domain", "Figure 8", biases, "prediction-bias-by-domain")
    # Of the appendix.
    yield _experiment("consistency", "Table 5")
    open_weight = "none: what Table 5 leaves open"
    yield _sweep("lambda-cons", open_weight, "λ_cons", [0.1, 0.3, 1, 3], "consistency")
    yield _experiment("lambda-ema-alone", "Table 6", ["means"], rows="λ_ema")
    yield _experiment("lambda-src-alone", "Table 7", ["means"], rows="λ_src")
    yield _experiment("labels", "Table 8")
    yield _experiment("cotta-output", "Table 9")


def _experiment(
    id: str, where: str, measures: Iterable[str] = ("accuracy",), of: str = "", **fields: Any
) -> Experiment:
    """All rows of a table, or all that a figure draws; `of`: its id, if another."""
    printed = {**published(), **published_figures()}[of or id]
    lines = tuple(Line(row.label, row.method) for row in printed.rows) or _drawn(printed)
    return replace(Experiment(id, where, printed, lines, tuple(measures)), **fields)


def _drawn(figure: Published) -> tuple[Line, ...]:
    """Each method as Table 1 names it, at each batch size where there are several."""
    labels = {row.method: row.label for row in published()["table-imagenet"].rows}
    sizes = figure.batch_sizes if len(figure.batch_sizes) > 1 else (None,)
    return tuple(
        Line(labels.get(method, method), method, size)
        for method in figure.methods
        for size in sizes
    )


def _sweep(id: str, where: str, rows: str, values: list[float], of: str = "") -> Experiment:
    """A host, and a line for each value of a setting, which the id names, of what is added."""
    setting = id.replace("-", "_")
    host, added = (OURS, "consistency") if setting == "lambda_cons" else (EATA, "debias")
    swept = (Line(f"{v:g}", f"{host.method}+{added}({setting}={v:g})") for v in values)
    return _experiment(id, where, ["means"], of, rows=rows, lines=(host, *swept))


def find_experiment(id: str) -> Experiment:
    known = experiments()
    if id not in known:
        raise ValueError(
            f"There is no experiment {id!r}.{nearest(id, known)} Experiments: {listed(known, 99)}."
        )
    return known[id]
