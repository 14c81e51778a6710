"""What charts show, against plain restatements on the stored rows."""

import math

import numpy as np
import polars as pl
import pytest
from compared import comparison_of
from made import make_run

from holdfast.paper.measures import MEASURES
from holdfast.report import chart_data
from holdfast.results.stored import StoredRun


def test_accuracy_along_the_stream_is_that_of_the_rows(tmp_path):
    folder = make_run(tmp_path, accuracy={"fog": 20, "snow": 50, "original": 95})
    rows, table = folder.rows, chart_data.stream(comparison_of(tmp_path))
    # Few batches: a point for each.
    assert table["accuracy"].to_list() == [
        100 * correct / 20 for correct in rows["correct"].to_list()
    ]
    assert table["seen"].to_list() == [10 + 20 * number for number in range(12)]
    assert table["domain"].to_list() == ["fog"] * 4 + ["snow"] * 4 + ["original"] * 4


def test_a_long_stream_has_few_points_and_all_images(tmp_path):
    folder = make_run(tmp_path, batches=200, size=4)
    table = chart_data.stream(comparison_of(tmp_path))
    assert 100 < len(table) <= chart_data.POINTS + 3
    # Pieces of four batches: 16 images each.
    rows = folder.rows["correct"].to_list()
    assert table["accuracy"][0] == pytest.approx(100 * sum(rows[:4]) / 16)
    assert table.group_by("domain").len()["len"].to_list() == [50, 50, 50]


def test_seeds_are_averaged_along_the_stream(tmp_path):
    folders = [make_run(tmp_path, accuracy=acc, seed=seed) for seed, acc in ((0, 40), (1, 60))]
    table = chart_data.stream(comparison_of(tmp_path))
    both = np.array([folder.rows["correct"].to_list() for folder in folders]) * 5.0
    np.testing.assert_allclose(table["accuracy"], both.mean(0))
    np.testing.assert_allclose(table["std"], both.std(0, ddof=1))


def test_domains_have_their_bounds_unless_runs_differ(tmp_path):
    make_run(tmp_path)
    make_run(tmp_path, "tent", cut=6)
    bounds = chart_data.boundaries(comparison_of(tmp_path))
    assert bounds["domain"].to_list() == ["fog", "snow", "original"]
    assert bounds["start"].to_list() == [0, 80, 160]
    make_run(tmp_path, "bn", {"snow": 50, "fog": 50, "original": 50})
    assert chart_data.boundaries(comparison_of(tmp_path)).is_empty()


def test_classes_are_ranked_by_how_often_they_are_predicted(tmp_path):
    folder = make_run(tmp_path, accuracy=50, rows={"favourite": 0.9})
    table = chart_data.ranks(comparison_of(tmp_path))
    counts = folder.rows["predicted"].explode().value_counts()["count"]
    assert table["images"].to_list() == sorted(counts, reverse=True)
    assert table["rank"].to_list() == list(range(1, 11))
    assert set(table["level"]) == {24.0}
    of_fog = chart_data.ranks(comparison_of(tmp_path), "fog")
    fog = folder.rows.filter(pl.col("domain") == "fog")["predicted"].explode()
    assert of_fog["images"].max() == fog.value_counts()["count"].max()


def test_many_classes_are_thinned_and_keep_both_ends(tmp_path):
    make_run(tmp_path, classes=1000, size=50)
    table = chart_data.ranks(comparison_of(tmp_path))
    assert len(table) == chart_data.RANKS
    assert (table["rank"].min(), table["rank"].max()) == (1, 1000)


def test_bins_are_over_all_images_of_all_seeds(tmp_path):
    folders = [make_run(tmp_path, seed=seed) for seed in range(2)]
    table = chart_data.bins(comparison_of(tmp_path))
    rows = pl.concat([folder.rows for folder in folders])
    sure = np.concatenate([np.array(one) for one in rows["confidence"].to_list()])
    right = np.concatenate(
        [
            np.array(a) == np.array(b)
            for a, b in zip(rows["label"].to_list(), rows["predicted"].to_list(), strict=True)
        ]
    )
    here = (sure >= 0.6) & (sure < 0.65)
    row = table.row(12, named=True)
    assert row["bin"] == "60 to 65 %"
    assert row["images"] == here.sum()
    assert row["share"] == pytest.approx(100 * here.mean())
    assert row["accuracy"] == pytest.approx(100 * right[here].mean())
    assert row["confidence"] == pytest.approx(100 * sure[here].mean(), rel=1e-5)
    assert table.row(0, named=True)["accuracy"] is None


def test_figures_by_domain_are_those_of_the_benchmark(tmp_path):
    folder = make_run(tmp_path, accuracy={"fog": 20, "snow": 50, "original": 95})
    table = chart_data.by_domain(comparison_of(tmp_path))
    finished = StoredRun.of(folder)
    for name in ("accuracy", "entropy", "bias", "time"):
        expected = MEASURES[name].read(finished)
        column = table["time_mean" if name == "time" else name]
        for domain, value in zip(table["domain"], column, strict=True):
            assert value == pytest.approx(expected[domain])
    fog = folder.rows.filter(pl.col("domain") == "fog")["time"]
    assert table["time"][0] == pytest.approx(1000 * fog.median())


def test_distances_are_those_of_the_analysis(tmp_path):
    make_run(tmp_path)
    assert chart_data.geometry(comparison_of(tmp_path)).is_empty()
    folder = make_run(tmp_path, "eata+debias", analysis=True)
    table = chart_data.geometry(comparison_of(tmp_path))
    assert set(table["method"]) == {"eata+debias"}
    assert table["gap"].to_list() == folder.analysis["gap"].to_list()


def test_distances_of_random_orders_are_averaged_domain_by_domain(tmp_path):
    """The gap is 10 less a twentieth of the accuracy."""
    for order, accuracy in enumerate(({"fog": 20, "snow": 60}, {"snow": 80, "fog": 40})):
        stream = f"continual(order=random,order_seed={order})"
        make_run(tmp_path, accuracy=accuracy, analysis=True, stream=stream)
    table = chart_data.geometry(comparison_of(tmp_path))
    assert table["domain"].to_list() == ["fog", "snow"]
    assert table["gap"].to_list() == pytest.approx([8.5, 6.5])


def test_an_alarm_stands_where_it_rang(tmp_path):
    make_run(tmp_path, accuracy=0, classes=40, batches=60, rows={"favourite": 1.0})
    make_run(tmp_path, "tent", classes=40, batches=60)
    (alarm,) = chart_data.alarms(comparison_of(tmp_path), "collapse").to_dicts()
    assert alarm["method"] == "eata"
    assert alarm["seen"] == 20 * (alarm["batch"] + 1)
    # Watch looks over ten images a class, and at least 500.
    assert alarm["batch"] == 24


def told(number):
    """Nothing before batch 2; the alarm rings from batch 5, and 5 to 7 are answered otherwise."""
    if number < 2:
        return {}
    estimated = {"estimated": 0.5, "estimated_low": 0.4, "estimated_high": 0.7}
    return {**estimated, "alarm": number >= 5, "fallback": number in (5, 6, 7)}


def test_estimates_stand_beside_the_accuracy_of_the_same_batches(tmp_path):
    folder = make_run(tmp_path, "tent", rows={"told": told})
    make_run(tmp_path, "bn")
    table = chart_data.estimates(comparison_of(tmp_path))
    rows = folder.rows.filter(pl.col("estimated").is_not_null())
    assert set(table["method"]) == {"tent"}
    assert table["accuracy"].to_list() == pytest.approx(
        (100 * rows["correct"] / rows["scored"]).to_list()
    )
    assert table.select("estimated", "low", "high").unique().row(0) == pytest.approx((50, 40, 70))
    assert table["seen"][0] == 2 * 20 + 10


def test_where_the_source_model_answered_is_a_stretch(tmp_path):
    make_run(tmp_path, "tent", rows={"told": told})
    make_run(tmp_path, "bn")
    (stretch,) = chart_data.fallbacks(comparison_of(tmp_path)).to_dicts()
    assert (stretch["method"], stretch["batches"]) == ("tent", 3)
    assert (stretch["start"], stretch["end"]) == (5 * 20, 8 * 20)
    (alarm,) = chart_data.alarms(comparison_of(tmp_path), "alarm").to_dicts()
    assert (alarm["batch"], alarm["seen"]) == (5, 6 * 20)


def test_json_holds_six_digits_and_no_nan():
    table = pl.DataFrame({"method": ["b", "a"], "x": [1 / 3, math.nan], "n": [1, 2]})
    assert chart_data.columns(table, {"a": 0, "b": 1}) == {
        "method": [1, 0],
        "x": [0.333333, None],
        "n": [1, 2],
    }
