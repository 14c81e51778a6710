"""Published numbers, where they may stand beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from holdfast.bench.store import RunFolder
from holdfast.paper.comparable import CONTROL, code_of, differences, published_row
from holdfast.paper.experiments import Experiment, Line, experiments
from holdfast.paper.measures import Finished
from holdfast.paper.published import Benchmark, PublishedRow, PublishedTable
from holdfast.recipes.compose import compose
from holdfast.results.compare import Comparison, Group, brief
from holdfast.results.published_rows import PublishedRows
from holdfast.util.words import enumerated


def published_rows(comparison: Comparison) -> PublishedRows:
    found = _published_rows(comparison)
    return replace(found, note=f"{found.note} {comparison.caveat}".strip())


def _published_rows(comparison: Comparison) -> PublishedRows:
    runs = {one.label: _finished(one) for one in comparison.groups}
    known = [one for each in runs.values() for one in each]
    if not known and any(one.finished for one in comparison.runs):
        return PublishedRows("None of these runs can stand beside published numbers.")
    if not known:
        return PublishedRows("No run is finished, so none stands beside published numbers.")
    data = known[0].run.data
    tables = [one for one in _tables() if one.benchmark.data == data]
    if not tables:
        return PublishedRows(
            f"The paper has no numbers on {brief(data)}, so none stand beside these."
        )
    tried = [_try(table, runs) for table in tables]
    return max(tried, key=lambda one: len(one.rows))


def _tables() -> Iterable[Experiment]:
    """The paper's, one for each benchmark and kind of stream."""
    found: dict[tuple[Benchmark, str], Experiment] = {}
    for one in experiments().values():
        if isinstance(one.printed, PublishedTable) and one.printed.of_paper:
            found.setdefault((one.benchmark, one.stream), one)
    return found.values()


def _try(experiment: Experiment, runs: Mapping[str, list[Finished]]) -> PublishedRows:
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
        return PublishedRows(
            f"Published numbers are the paper's ({experiment.where}): data, model and protocol "
            f"are the same, and the model that never adapts scores what the paper says.{rest}",
            rows,
        )
    if reasons:
        why = enumerated(list(reasons)[:4])
        return PublishedRows(f"Not comparable with the paper's {experiment.where}: {why}.")
    return PublishedRows(f"The paper's {experiment.where} has none of these methods.")


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
                and bool(one.run.laid_out)
                and isinstance(one.run.data, str)
                and isinstance(one.run.model, str | None)
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
