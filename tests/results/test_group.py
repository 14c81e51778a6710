"""Means over runs, and differences run by run."""

import math
from statistics import stdev

import pytest

from holdfast.results.group import Number

SEEDS = ("0", "1", "2")


def over(*values):
    return Number.over(dict(zip(SEEDS, values, strict=False)))


def test_a_change_is_taken_seed_by_seed():
    change = over(41.0, 51.5, 60.5).minus(over(40.0, 50.0, 60.0))
    assert change.value == pytest.approx(1.0)
    assert change.std == pytest.approx(stdev([1.0, 1.5, 0.5]))


def test_where_seeds_differ_their_spreads_add_up():
    change = over(41.0, 51.5, 60.5).minus(over(40.0, 50.0))
    assert change.value == pytest.approx(51 - 45)
    assert change.std == pytest.approx(math.hypot(stdev([41.0, 51.5, 60.5]), stdev([40.0, 50.0])))


def test_a_published_number_has_no_runs_to_pair():
    assert math.isnan(Number(51.0, 0.3).minus(Number(50.0, 0.4)).std)


def test_what_no_run_defines_is_not_known():
    assert not over(math.nan) and over(math.nan).text() == "–"
    assert over(math.nan, 3.0, 5.0).value == 4.0
    assert math.isnan(over(7.0).std)


def test_texts():
    assert Number(43.214, 0.118).text() == "43.21 ± 0.12"
    assert Number(43.214, 0.118).text(spread=False) == Number(43.214).text() == "43.21"
    assert Number(-0.5).text(1, sign="+") == "−0.5" and Number(0.5).text(1, sign="+") == "+0.5"
    assert Number(0.5, 0.25).times(100).text(0) == "50 ± 25"
