"""Whether a number of ours may stand beside a published one: what differs, in words.

Data, model and protocol have to be those of the paper. Names alone do not show it, since a folder
may hold regenerated images and a file any weights. So a control has to agree as well: the model
that never adapts has to score what the paper's Source row says, domain by domain.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from holdfast.bench.materials import SOURCES
from holdfast.bench.options import OPTIONS
from holdfast.bench.plan import Run
from holdfast.bench.shown import MODELS
from holdfast.data.streams import parse
from holdfast.models.find import NETWORKS
from holdfast.paper.experiments import Experiment, Line, experiments
from holdfast.paper.measures import FIFTEEN, printed_means
from holdfast.paper.published import Benchmark, PublishedRow, published
from holdfast.recipes.compose import compose
from holdfast.results.comparison import Comparison, short_data
from holdfast.results.group import Number
from holdfast.results.stored import StoredRun
from holdfast.results.tables import PublishedNumbers, PublishedRows
from holdfast.util.words import enumerated

CONTROL = Line("Source", "frozen")

# In points: rounding, and a few images that another library's floats or JPEG decoder decide.
TOLERANCE = 0.1

# Options that have a sentence of their own; and all others that may make a difference.
_SAID = {"data", "model", "mean", "std", "severity", "preset", "source", "precision"}
CHECKED_BY_DEFAULT = {
    flag
    for flag, option in OPTIONS.items()
    if option.decides in ("images", "method") and option.told_by != "stream" and flag not in _SAID
}


def in_protocol(experiment: Experiment, line: Line) -> bool:
    """Whether a line keeps to the batch size of the paper's tables."""
    return line.batch in (None, experiment.benchmark.batch_size)


def published_row(experiment: Experiment, line: Line) -> PublishedRow | None:
    """What the paper says of a line, in any table on the same benchmark and stream: where several
    have it, they agree."""
    if not in_protocol(experiment, line):
        return None
    return next(_rows_of(line.method, experiment.benchmark, experiment.stream), None)


def _rows_of(method: str, benchmark: Benchmark, stream: str) -> Iterator[PublishedRow]:
    for table in published().values():
        if table.of_paper and (table.benchmark, table.stream) == (benchmark, stream):
            row = table.row(method)
            if row is not None:
                yield row


def planned_differences(run: Run, experiment: Experiment) -> list[str]:
    """What differs from the paper's protocol, as far as it is known before a run."""
    benchmark, expected = experiment.benchmark, parse(experiment.stream)
    stream, source = run.resolved_stream, run.model.source
    # Which random order is left open; batches and limits have a sentence of their own.
    alike = replace(expected, limit=stream.limit, batch=stream.batch, order_seed=stream.order_seed)
    sentences = {
        f"the data is {run.data.name}, not {benchmark.data}": run.data.name != benchmark.data,
        f"the model is {model_name(run)}, not {benchmark.network} ({benchmark.weights})": (
            network(run) != benchmark.network
        ),
        "the model's normalisation was given": run.normalization is not None,
        f"severity is {run.data.severity}, not {benchmark.severity}": (
            run.data.severity != benchmark.severity
        ),
        _images(stream.limit, benchmark): 0 < stream.limit < benchmark.images,
        f"batches are of {stream.batch} images, not {benchmark.batch_size}": (
            stream.batch != benchmark.batch_size
        ),
        f"the stream is {stream}, not {expected}": stream != alike,
        f"the preset is {run.preset or 'none'}, not {benchmark.preset}": (
            run.preset != benchmark.preset
        ),
        f"the source is known from {source}, not from the training set": (
            source not in (None, SOURCES[benchmark.data])
        ),
        f"forward passes are in {run.model.precision}": run.model.precision is not None,
    }
    # All other options have to be at their defaults, which are the paper's protocol.
    usual = {
        **{flag: option.default for flag, option in OPTIONS.items()},
        "window": run.usual_window,
    }
    options = {
        f"--{flag} {value} was given": value != usual[flag]
        for flag, value in run.as_used.items()
        if flag in CHECKED_BY_DEFAULT
    }
    return [text for text, differs in {**sentences, **options}.items() if differs]


def model_name(run: Run) -> str:
    return run.model.name or MODELS.get(run.data.name, "none")


def network(run: Run) -> str | None:
    """The architecture, where the model's name tells it."""
    first, _, rest = model_name(run).partition(":")
    if first in NETWORKS:
        return first
    if first == "torchvision":
        return rest.partition(":")[0]
    return rest.partition(".")[0] if first == "timm" else None


def differences(experiment: Experiment, runs: Iterable[StoredRun]) -> tuple[str, ...]:
    """What keeps finished runs from standing beside the paper's; empty: nothing."""
    finished, benchmark, reasons = list(runs), experiment.benchmark, []
    for run in finished:
        reasons += planned_differences(run.run, experiment)
        images = images_a_domain(run)
        if images != benchmark.images and not run.run.resolved_stream.limit:
            reasons.append(_images(images, benchmark))
    return tuple(dict.fromkeys(reasons or _control(benchmark, finished)))


def images_a_domain(run: StoredRun) -> int:
    return round(run.manifest.images / len(run.manifest.order))


def _images(count: int, benchmark: Benchmark) -> str:
    return f"{count:,} images a domain, not {benchmark.images:,}"


def _control(benchmark: Benchmark, runs: list[StoredRun]) -> list[str]:
    """What the model that never adapts says of data and weights."""
    controls = _controls(benchmark, runs)
    if not controls:
        return ["no run of frozen shows that data and weights are the paper's"]
    source = next(_rows_of(CONTROL.method, benchmark, "continual"))
    reasons = []
    for control in controls:
        ours = control.by_domain("accuracy")
        worst = max(source.by_domain, key=lambda name: abs(ours[name] - source.by_domain[name]))
        if abs(ours[worst] - source.by_domain[worst]) > TOLERANCE:
            reasons.append(
                f"data or weights are not the paper's, since frozen has {ours[worst]:.2f} % on "
                f"{worst} and the paper's Source {source.by_domain[worst]:.2f} %"
            )
    hashes = {tuple(map(run.manifest.hashes.get, ("data", "model"))) for run in runs}
    if len(hashes) > 1:
        reasons.append("runs are of several data sets or weights")
    if len({run.manifest.code for run in runs}) > 1:
        reasons.append("runs were made by different code")
    return reasons


def _controls(benchmark: Benchmark, runs: Iterable[StoredRun]) -> list[StoredRun]:
    frozen = compose(CONTROL.method, preset=benchmark.preset)
    return [run for run in runs if run.run.composition == frozen]


# Of a comparison.


def published_rows(comparison: Comparison) -> PublishedRows:
    rows = _published_rows(comparison)
    return replace(rows, note=f"{rows.note} {comparison.caveat}".strip())


def _published_rows(comparison: Comparison) -> PublishedRows:
    runs = {
        group.label: [run for run in group.runs if _can_be_compared(run)]
        for group in comparison.groups
    }
    known = [run for of_group in runs.values() for run in of_group]
    if not known and any(run.finished for run in comparison.runs):
        return PublishedRows("None of these runs can stand beside published numbers.")
    if not known:
        return PublishedRows("No run is finished, so none stands beside published numbers.")
    data = known[0].run.data.name
    tables: dict[tuple[Benchmark, str], Experiment] = {}
    for experiment in experiments().values():
        if experiment.printed.rows and experiment.benchmark.data == data:
            tables.setdefault((experiment.benchmark, experiment.stream), experiment)
    if not tables:
        name = short_data(data)
        return PublishedRows(f"The paper has no numbers on {name}, so none stand beside these.")
    return max((_try(table, runs) for table in tables.values()), key=lambda tried: len(tried.rows))


def _try(experiment: Experiment, runs: Mapping[str, list[StoredRun]]) -> PublishedRows:
    controls = _controls(experiment.benchmark, [run for group in runs.values() for run in group])
    rows: dict[str, PublishedNumbers] = {}
    reasons: dict[str, None] = {}
    for label, group in runs.items():
        if not group:
            continue
        same = [run for run in controls if run.manifest.code == group[0].manifest.code]
        apart = differences(experiment, [*(same or controls), *group])
        reasons |= dict.fromkeys(apart)
        row = None if apart else published_row(experiment, Line(label, group[0].run.method))
        if row is not None:
            rows[label] = _numbers(row)
    if rows:
        why_not = f" For the others: {enumerated(list(reasons)[:4])}." if reasons else ""
        return PublishedRows(
            f"Published numbers are the paper's ({experiment.where}): data, model and protocol "
            f"are the same, and the model that never adapts scores what the paper says.{why_not}",
            rows,
        )
    if reasons:
        why = enumerated(list(reasons)[:4])
        return PublishedRows(f"Not comparable with the paper's {experiment.where}: {why}.")
    return PublishedRows(f"The paper's {experiment.where} has none of these methods.")


def _numbers(row: PublishedRow) -> PublishedNumbers:
    numbers = {f"accuracy/{name}": Number(value) for name, value in row.by_domain.items()}
    numbers["mean_accuracy"] = Number(row.mean, math.nan if row.std is None else row.std)
    if FIFTEEN in (means := printed_means(row)):
        numbers["mean_accuracy_corrupted"] = Number(means[FIFTEEN])
    return PublishedNumbers(row.label, numbers)


def _can_be_compared(run: StoredRun) -> bool:
    """Whether the benchmark's own rules can be asked about it: its manifest holds what a run's
    does."""
    manifest = run.manifest
    try:
        written = run.run
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        return False
    return (
        manifest.finished
        and isinstance(written.data.name, str)
        and isinstance(written.model.name, str | None)
        and {"data", "model"} <= set(manifest.hashes)
        and bool(manifest.order)
        and bool(run.by_domain("accuracy"))
    )
