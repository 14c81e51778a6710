"""Stored runs as a data frame."""

import polars as pl
import pytest
from short_runs import plan

from holdfast.bench import perform
from holdfast.results.frame import frame


@pytest.fixture(scope="module")
def out(tmp_path_factory, materials):
    folder = tmp_path_factory.mktemp("runs")
    for run in (plan("bn"), plan("tent"), plan("tent", seed=1)):
        perform(run, materials, folder)
    return folder


def test_a_row_a_run_with_what_its_manifest_has(out):
    found = frame(out)
    assert isinstance(found, pl.DataFrame)
    assert found.sort("method", "seed").select("method", "seed").rows() == [
        ("bn", 0),
        ("tent", 0),
        ("tent", 1),
    ]
    assert found["finished"].all() and set(found["data"]) == {"glyphs-c"}
    assert found["mean_accuracy"].is_between(1, 100).all()
    # What bn has none of is there, and empty, whichever run comes first.
    by_method = {row["method"]: row for row in found.iter_rows(named=True)}
    assert by_method["bn"]["loss/entropy"] is None and by_method["tent"]["loss/entropy"] > 0


def test_a_folder_without_runs(tmp_path):
    assert frame(tmp_path).is_empty()
    with pytest.raises(ValueError, match="not a folder of runs"):
        frame(tmp_path / "nowhere")
