"""Published numbers, where they may stand beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.bench.store import RunFolder
from holdfast.paper.comparable import CONTROL, code_of, differences, published_row
from holdfast.paper.experiments import Experiment, Line, experiments
from holdfast.paper.measures import Finished
from holdfast.paper.published import Benchmark, PublishedRow, PublishedTable
from holdfast.recipes.compose import compose
from holdfast.results.compare import Comparison, Group, brief
from holdfast.util.words import enumerated


@dataclass(frozen=True)
class Beside:
    """Rows of the paper's tables by group, and a sentence on whether and why not."""

    note: str
    rows: Mapping[str, PublishedRow] = field(default_factory=dict)


def beside(comparison: Comparison) -> Beside:
    found = _beside(comparison)
    return replace(found, note=f"{found.note} {comparison.caveat}".strip())


def _beside(comparison: Comparison) -> Beside:
    runs = {one.label: _finished(one) for one in comparison.groups}
    known = [one for each in runs.values() for one in each]
    if not known and any(one.finished for one in comparison.runs):
        return Beside("None of these runs can stand beside published numbers.")
    if not known:
        return Beside("No run is finished, so none stands beside published numbers.")
    data = known[0].run.data.name
    tables = [one for one in _tables() if one.benchmark.data == data]
    if not tables:
        return Beside(f"The paper has no numbers on {brief(data)}, so none stand beside these.")
    tried = [_try(table, runs) for table in tables]
    return max(tried, key=lambda one: len(one.rows))


def _tables() -> Iterable[Experiment]:
    """The paper's, one for each benchmark and kind of stream."""
    found: dict[tuple[Benchmark, str], Experiment] = {}
    for one in experiments().values():
        if isinstance(one.printed, PublishedTable) and one.printed.of_paper:
            found.setdefault((one.benchmark, one.stream), one)
    return found.values()


def _try(experiment: Experiment, runs: Mapping[str, list[Finished]]) -> Beside:
    frozen = compose(CONTROL.method, preset=experiment.benchmark.preset)
    controls = [one for each in runs.values() for one in each if one.run.composition == frozen]
    rows: dict[str, PublishedRow] = {}
    reasons: dict[str, None] = {}
    for label, each in runs.items():
        if not each:
            continue
        same = [one for one in controls if code_of(one) == code_of(each[0])]
        apart = differences(experiment, [*(same or controls), *each])
        reasons |= dict.fromkeys(apart)
        row = None if apart else published_row(experiment, Line(label, each[0].run.method))
        if row is not None:
            rows[label] = row
    if rows:
        rest = f" For the others: {enumerated(list(reasons)[:4])}." if reasons else ""
        return Beside(
            f"Published numbers are the paper's ({experiment.where}): data, model and protocol "
            f"are the same, and the model that never adapts scores what the paper says.{rest}",
            rows,
        )
    if reasons:
        why = enumerated(list(reasons)[:4])
        return Beside(f"Not comparable with the paper's {experiment.where}: {why}.")
    return Beside(f"The paper's {experiment.where} has none of these methods.")


def _finished(group: Group) -> list[Finished]:
    """Those of its runs that the benchmark's own rules can be asked about: their manifests hold
    what a run's does."""
    found = []
    for stored in group.runs:
        one = Finished(RunFolder(stored.path))
        try:
            manifest = one.manifest
            known = (
                stored.finished
                and bool(one.run.resolved_stream)
                and isinstance(one.run.data.name, str)
                and isinstance(one.run.model.name, str | None)
                and isinstance(manifest["images"], int)
                and {"data", "model"} <= set(manifest["hashes"])
                and bool(list(manifest["order"]))
                and bool(one.by_domain("accuracy"))
            )
        except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
            known = False
        if known:
            found.append(one)
    return found
