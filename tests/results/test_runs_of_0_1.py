"""Runs that version 0.1.0 wrote are read, compared and shown."""

from pathlib import Path

import polars as pl
import pytest

from holdfast.bench.store import RunFolder
from holdfast.paper.measures import MEASURES
from holdfast.report.page import Report, page
from holdfast.results.comparison import compare
from holdfast.results.gather import gather
from holdfast.results.tables import run_document

# The files as that version left them, but for the machine's name and the folder in the command.
RUNS = Path(__file__).parents[1] / "fixtures" / "0.1.0" / "runs"


@pytest.fixture(scope="module")
def gathered():
    return gather(RUNS)


def test_they_are_read_without_a_word(gathered):
    assert gathered.notes == () and gathered.finished
    assert sorted(run.title for run in gathered.runs) == ["eata+debias", "frozen"]
    assert {run.manifest.versions["holdfast"] for run in gathered.runs} == {"0.1.0"}


def test_their_options_are_those_of_a_run_of_today(gathered):
    (run,) = (run.run for run in gathered.runs if run.title == "frozen")
    assert (run.data.name, run.stream.domains, run.stream.batch) == ("glyphs-c", "fog,original", 8)
    assert run.composition.names == "frozen" and run.machine.threads == 1 and run.analysis


def test_their_metrics_are_those_of_their_rows(gathered):
    for run in gathered.runs:
        rows = pl.read_parquet(run.path / "rows.parquet")
        fog = rows.filter(pl.col("domain") == "fog")
        accuracy = 100 * fog["correct"].sum() / fog["scored"].sum()
        assert run.metric("accuracy/fog") == run.manifest.metrics["accuracy/fog"]
        assert run.metric("accuracy/fog") == pytest.approx(accuracy)
        assert MEASURES["gap"].read(run).keys() == {"fog", "original", "mean"}


def test_they_stand_in_one_comparison_table_and_page(gathered):
    (comparison,) = compare(gathered.runs)
    assert {group.label for group in comparison.groups} == {"eata+debias", "frozen"}
    _, accuracy, metrics = run_document([RunFolder(run.path) for run in gathered.runs])
    cells = {row.label: row.cells[0].text for row in accuracy.rows}
    assert cells == {
        group.label: f"{group.mean('accuracy/fog'):.2f}" for group in comparison.groups
    }
    assert len(metrics.rows) == 2
    assert "eata+debias is " in page(Report(gathered))
