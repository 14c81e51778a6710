"""Who comes, and in which rungs."""

import pytest

import holdfast
from holdfast.rehearsal.plan import FINALISTS, PLANNED, candidates, passes, plan_rungs, variants

METHODS = ["frozen", "bn", *(f"tent(lr={number})" for number in range(1, 17))]


def cost(level, methods):
    """A hundred images at the first level, twice as many at each one after; a method's rate is what
    it takes for one of them."""
    rates = {"frozen": 0.1, "bn": 0.1}
    return 100 * 2**level * sum(rates.get(name, 1.0) for name in methods)


def test_a_method_comes_with_what_it_tunes():
    assert variants("tent") == ["tent", "tent(lr=0.0004)", "tent(lr=0.0016)"]
    assert variants("eata+debias(alpha=0.9)")[1] == "eata(lr=0.001)+debias(alpha=0.9)"
    assert variants("bn") == ["bn"]


def test_a_method_comes_with_the_optimiser_of_its_preset_for_small_images():
    expected = ["roid", "roid(lr=0.001)", "roid(lr=0.001,optimizer=adam)"]
    assert variants("roid") == expected
    assert variants("roid+steady")[2] == "roid(lr=0.001,optimizer=adam)+steady"
    assert variants("roid(optimizer=sgd)") == [
        "roid(optimizer=sgd)",
        "roid(lr=0.001,optimizer=sgd)",
    ]
    assert variants("roid(lr=0.1)") == ["roid(lr=0.1)"]


def test_what_learns_fast_is_tuned_in_smaller_steps_too():
    assert all(min(holdfast.methods()[name].tunes["lr"]) < 1 for name in ("cotta", "rmt", "petta"))


def test_what_somebody_has_written_is_not_tuned():
    assert variants("tent(lr=0.5)+debias") == ["tent(lr=0.5)+debias"]


def test_a_plug_in_that_is_its_own_host_is_tuned_too():
    assert [holdfast.compose(one).host.lr for one in variants("debias")] == [2.5e-4, 1e-3, 4e-3]


def test_frozen_and_bn_always_come_and_nothing_twice():
    assert candidates(["tent(lr=1)", "bn", "tent(lr=1.0)"]) == ["frozen", "bn", "tent(lr=1.0)"]


def test_every_default_can_be_composed():
    assert all(holdfast.compose(name) for name in candidates(()))


def test_a_backward_counts_two_forwards():
    assert [passes(name) for name in ("frozen", "bn+steady", "tent", "sar")] == [1, 1, 3, 6]


@pytest.mark.parametrize("seconds", [2000, 4000, 8000, 16_000, 10**6])
def test_rungs_are_the_longest_that_fit(seconds):
    """All there can be, written out: each rung a level longer, with half as many methods."""
    fits = []
    for first in range(7):
        for halved in ([16], [16, 8], [16, 8, FINALISTS]):
            rungs = [(first + place, count) for place, count in enumerate(halved)]
            takes = sum(100 * 2**level * (0.2 + count) for level, count in rungs)
            if rungs[-1][0] <= 6 and takes <= PLANNED * seconds:
                fits.append((rungs[-1][0], first, rungs, takes))
    rungs, takes = plan_rungs(METHODS, cost, seconds, highest=6)
    assert ([(one.level, one.methods) for one in rungs], pytest.approx(takes)) == max(fits)[2:]


def test_with_time_for_all_there_is_one_rung_of_the_longest():
    rungs, _ = plan_rungs(METHODS, cost, 10**9, highest=3)
    assert [(one.level, one.methods) for one in rungs] == [(3, 16)]


def test_the_dearest_are_reckoned_with():
    def uneven(level, methods):
        return 2**level * sum(100 if name == "tent(lr=1)" else 1 for name in methods)

    rungs, expected = plan_rungs(METHODS, uneven, 1000, highest=9)
    least = sum(2**one.level * (100 + 1 + one.methods) for one in rungs)
    assert expected == least <= PLANNED * 1000


def test_too_few_minutes_are_told_with_how_many_it_takes():
    with pytest.raises(ValueError, match=r"17 minutes more\. Give more minutes, or name fewer"):
        plan_rungs(METHODS, cost, 780, highest=3)  # 1620 / 0.9 = 1800 seconds
