"""Settings that vary between runs of the same methods."""

import math

import polars as pl
import pytest
from compared import comparison_of
from made import make_run

from holdfast.report.sweeps import sweeps


def test_a_setting_that_varies_alone_is_an_axis(tmp_path):
    make_run(tmp_path, "eata", 50)
    for alpha, accuracy in ((0.9, 55), (0.99, 60)):
        for seed in range(2):
            make_run(tmp_path, f"eata+debias(alpha={alpha})", accuracy + 5 * seed, seed=seed)
    (axis,) = sweeps(comparison_of(tmp_path))
    assert (axis.key, axis.title) == ("debias.alpha", "α of debias")
    assert axis.table["value"].to_list() == [0.9, 0.99]
    assert axis.table["mean"].to_list() == pytest.approx([57.5, 62.5])
    assert axis.table["std"].to_list() == pytest.approx([5 / math.sqrt(2)] * 2)
    assert set(axis.table["curve"]) == {"eata+debias"}
    assert set(axis.table["host_mean"]) == {50.0}


def test_batch_sizes_have_a_curve_for_each_method(tmp_path):
    for method in ("eata", "eata+debias"):
        for batch in (16, 64, 4):
            make_run(tmp_path, method, batch=batch)
    (axis,) = sweeps(comparison_of(tmp_path))
    assert axis.title == "batch size"
    assert axis.table.filter(pl.col("curve") == "eata")["value"].to_list() == [4, 16, 64]
    assert axis.table["curve"].n_unique() == 2
    # Each batch size has a host of its own: there is no one level for all.
    assert axis.table["host"].null_count() == 6


def test_two_settings_at_once_are_no_curve(tmp_path):
    make_run(tmp_path, "eata(lr=0.1,redundancy=0.1)")
    make_run(tmp_path, "eata(lr=0.2,redundancy=0.2)")
    assert sweeps(comparison_of(tmp_path)) == []
