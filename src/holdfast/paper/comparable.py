"""Whether a number of ours may stand beside a published one: what differs, in words.

Data, model and protocol have to be those of the paper. Names alone do not show it, since a folder
may hold regenerated images and a file any weights. So a control has to agree as well: the model
that never adapts has to score what the paper's Source row says, domain by domain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from holdfast.bench.materials import MODELS, SOURCES
from holdfast.bench.options import OPTIONS
from holdfast.bench.plan import Run
from holdfast.data.streams import parse
from holdfast.models.find import NETWORKS
from holdfast.paper.experiments import Experiment, Line
from holdfast.paper.published import Benchmark, PublishedRow, published
from holdfast.recipes.compose import compose
from holdfast.results.stored import StoredRun

CONTROL = Line("Source", "frozen")

# In points: rounding, and a few images that another library's floats or JPEG decoder decide.
TOLERANCE = 0.1

# Options that have a sentence of their own; and all others that may make a difference.
_SAID = {"data", "model", "mean", "std", "severity", "preset", "source", "precision"}
CHECKED_BY_DEFAULT = {
    flag
    for flag, one in OPTIONS.items()
    if one.decides in ("images", "method") and one.told_by != "stream" and flag not in _SAID
}


def in_protocol(experiment: Experiment, line: Line) -> bool:
    """Whether a line keeps to the batch size of the paper's tables."""
    return line.batch in (None, experiment.benchmark.batch_size)


def published_row(experiment: Experiment, line: Line) -> PublishedRow | None:
    """What the paper says of a line, in any table on the same benchmark and stream: where several
    have it, they agree."""
    if not in_protocol(experiment, line):
        return None
    tables = (
        table
        for table in published().values()
        if table.of_paper
        and table.benchmark == experiment.benchmark
        and table.stream == experiment.stream
    )
    return next((row for table in tables if (row := table.row(line.method))), None)


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
    # Of all other options, the paper's protocol is what they are where nothing is given.
    usual = {**{flag: one.default for flag, one in OPTIONS.items()}, "window": run.usual_window}
    others = {
        f"--{flag} {value} was given": value != usual[flag]
        for flag, value in run.as_used.items()
        if flag in CHECKED_BY_DEFAULT
    }
    return [text for text, differs in {**sentences, **others}.items() if differs]


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
    finished = list(runs)
    found = [text for one in finished for text in _differences(experiment, one)]
    if not found:
        found = _control(experiment.benchmark, finished)
    return tuple(dict.fromkeys(found))


def _differences(experiment: Experiment, one: StoredRun) -> list[str]:
    found = planned_differences(one.run, experiment)
    benchmark = experiment.benchmark
    images = images_a_domain(one)
    if images != benchmark.images and not one.run.resolved_stream.limit:
        found.append(_images(images, benchmark))
    return found


def images_a_domain(run: StoredRun) -> int:
    return round(run.manifest.images / len(run.manifest.order))


def _images(count: int, benchmark: Benchmark) -> str:
    return f"{count:,} images a domain, not {benchmark.images:,}"


def _control(benchmark: Benchmark, runs: list[StoredRun]) -> list[str]:
    """What the model that never adapts says of data and weights."""
    frozen = compose(CONTROL.method, preset=benchmark.preset)
    source = next(
        row
        for table in published().values()
        if table.of_paper and table.benchmark == benchmark
        if (row := table.row(CONTROL.method))
    )
    controls = [one for one in runs if one.run.composition == frozen]
    if not controls:
        return ["no run of frozen shows that data and weights are the paper's"]
    found = []
    for one in controls:
        ours = one.by_domain("accuracy")
        worst = max(source.by_domain, key=lambda name: abs(ours[name] - source.by_domain[name]))
        if abs(ours[worst] - source.by_domain[worst]) > TOLERANCE:
            found.append(
                f"data or weights are not the paper's, since frozen has {ours[worst]:.2f} % on "
                f"{worst} and the paper's Source {source.by_domain[worst]:.2f} %"
            )
    hashes = {tuple(map(one.manifest.hashes.get, ("data", "model"))) for one in runs}
    if len(hashes) > 1:
        found.append("runs are of several data sets or weights")
    if len({one.manifest.code for one in runs}) > 1:
        found.append("runs were made by different code")
    return found
