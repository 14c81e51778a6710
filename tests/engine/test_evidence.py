"""The alarm rings on no more streams than it says, whenever one looks, and soon where it should."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.evidence import Evidence

LEVEL, TOLERANCE, FLOOR = 0.05, 0.02, 0.02
STREAMS, LONG = 2000, 300


def share(bet):
    """Of the level, what the bet of this number has."""
    return 1 / (1 + np.log2(bet)) - 1 / (1 + np.log2(bet + 1))


class PlainEvidence:
    """A gambler at each mean stakes nine tenths of all each time. All begin anew when the
    first of them has less than it began with."""

    def __init__(self, level, tolerance, floor):
        self.level, self.floor = level, floor
        self.means = [tolerance + 0.025 * step for step in range(33)]
        self.purses, self.bet, self.rings = [1.0] * 33, 1, False

    @property
    def goal(self):
        return 1 / (self.level * share(self.bet))

    def __call__(self, observed):
        x = max(observed, -self.floor)
        for index, mean in enumerate(self.means):
            grown = self.purses[index] * (1 + 9 * (x - mean) / (10 * (mean + self.floor)))
            self.purses[index] = min(grown, self.goal)
        if self.purses[0] < 1:
            self.bet, self.purses, self.rings = self.bet + 1, [1.0] * 33, False
            return False
        begins = self.purses[0] >= self.goal * (1 - 1e-12) and not self.rings
        self.rings = self.rings or begins
        return begins

    @property
    def bound(self):
        won = [
            mean
            for mean, purse in zip(self.means, self.purses, strict=True)
            if purse >= self.goal * (1 - 1e-12)
        ]
        return max(won, default=None)


@settings(max_examples=60, deadline=None)
@given(
    # Away from the means themselves, at which rounding decides whether a bet is lost.
    st.lists(st.integers(-50, 50).map(lambda n: n / 50 + 0.00123), max_size=150),
    st.sampled_from([0.01, 0.05, 0.3]),
    st.sampled_from([0.0, 0.02, 0.1]),
)
def test_it_is_the_plain_restatement(observed, level, tolerance):
    evidence, plain = (kind(level, tolerance, FLOOR) for kind in (Evidence, PlainEvidence))
    # A rise at the end, so that every example has something to ring for.
    for x in [*observed, *[0.8] * 40]:
        assert evidence(x) == plain(x)
        assert bool(evidence.rings) == plain.rings
        assert evidence.bound == (None if plain.bound is None else pytest.approx(plain.bound))
    assert plain.rings


def ever_rings(observed, level=LEVEL, tolerance=TOLERANCE, floor=FLOOR):
    """Of each row: whether the alarm rings at any time. Plain numpy, all rows at once."""
    purse, bet = np.ones(len(observed)), np.ones(len(observed))
    rang = np.zeros(len(observed), dtype=bool)
    for x in np.maximum(observed, -floor).T:
        purse = purse * (1 + 0.9 * (x - tolerance) / (tolerance + floor))
        rang |= purse >= 1 / (level * share(bet))
        lost = purse < 1
        purse, bet = np.where(lost, 1.0, purse), bet + lost
    return rang


def two_values(rng, low, high):
    """Mean at the tolerance, as far apart as asked for."""
    share = (TOLERANCE - low) / (high - low)
    return np.where(rng.random((STREAMS, LONG)) < share, high, low)


def wandering(rng):
    """The mean of what comes next depends on what came, and is at most the tolerance."""
    found, last = np.empty((STREAMS, LONG)), np.zeros(STREAMS)
    for step in range(LONG):
        mean = np.where(last > 0, TOLERANCE, TOLERANCE - 0.03)
        share = (mean + FLOOR) / (0.3 + FLOOR)
        last = found[:, step] = np.where(rng.random(STREAMS) < share, 0.3, -FLOOR)
    return found


LAWS = {
    "constant": lambda rng: np.full((STREAMS, LONG), TOLERANCE),
    "coin": lambda rng: two_values(rng, -FLOOR, 0.2),
    "rare": lambda rng: two_values(rng, -FLOOR, 1.0),
    "narrow": lambda rng: rng.uniform(TOLERANCE - 0.02, TOLERANCE + 0.02, (STREAMS, LONG)),
    "wide": lambda rng: rng.uniform(-FLOOR, 2 * TOLERANCE + FLOOR, (STREAMS, LONG)),
    "skewed": lambda rng: rng.exponential(TOLERANCE + FLOOR, (STREAMS, LONG)) - FLOOR,
    "wandering": wandering,
}


def at_most(share, level, count=STREAMS):
    """Within three standard deviations of a share of exactly the level."""
    return share <= level + 3 * math.sqrt(level * (1 - level) / count)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("level", [0.05, 0.2])
def test_no_more_streams_ring_than_the_level(law, level):
    observed = LAWS[law](np.random.default_rng(0))
    assert np.maximum(observed, -FLOOR).mean() < TOLERANCE + 0.002
    assert at_most(ever_rings(observed, level).mean(), level)


def test_the_quick_count_is_that_of_the_alarm_itself():
    """So that what is counted above is what an adapter has."""
    observed = LAWS["rare"](np.random.default_rng(1))[:150]
    observed[::3, 50:] += 0.1
    rang = []
    for row in observed.tolist():
        evidence = Evidence(LEVEL, TOLERANCE, FLOOR)
        rang.append(bool(run(evidence, row)))
    assert rang == ever_rings(observed).tolist()
    assert 50 <= sum(rang) < 150


def test_the_rate_is_not_bought_by_silence():
    """With a mean well above the tolerance nearly every stream rings."""
    observed = LAWS["coin"](np.random.default_rng(0)) + 0.08
    assert ever_rings(observed).mean() > 0.99


def run(evidence, observed):
    """The numbers of the observations at which it begins to ring."""
    return [number for number, x in enumerate(observed, start=1) if evidence(x)]


@pytest.mark.parametrize("before", [0, 10, 1000])
def test_a_rise_is_heard_soon_however_late_it_comes(before):
    evidence, rng = Evidence(LEVEL, TOLERANCE, FLOOR), np.random.default_rng(2)
    assert run(evidence, rng.uniform(-0.05, 0.03, before)) == []
    (at,) = run(evidence, rng.uniform(0.1, 0.3, 60))
    assert at <= 25
    assert evidence.rings and evidence.bound >= TOLERANCE


def test_it_stops_ringing_after_the_mean_has_fallen_and_rings_again():
    evidence = Evidence(LEVEL, TOLERANCE, FLOOR)
    assert len(run(evidence, [0.5] * 200)) == 1  # told once, and it goes on
    assert evidence.rings
    # However long it has rung: what was won is not saved up.
    quiet = [bool(evidence.rings) for _ in range(40) if not evidence(-0.05)]
    assert quiet[0] and not quiet[-1]
    assert quiet.index(False) <= 12
    assert evidence.bound is None
    assert len(run(evidence, [0.5] * 60)) == 1


def test_what_lies_below_the_floor_counts_as_the_floor():
    one, other = (Evidence(LEVEL, TOLERANCE, FLOOR) for _ in range(2))
    for x in [0.4, 0.4, -5.0, 0.4, 0.4, 0.4, -1e30] + [0.4] * 20:
        assert one(x) == other(max(x, -FLOOR))
        assert torch.equal(one.stakes, other.stakes) and one.bets == other.bets
    assert one.rings


@pytest.mark.parametrize("mean", [0.05, 0.13, 0.3])
@pytest.mark.parametrize("kind", ["rare", "wide"])
def test_the_bound_is_below_the_mean(mean, kind):
    rng, streams = np.random.default_rng(3), 200
    if kind == "rare":
        rows = np.where(rng.random((streams, 100)) < (mean + FLOOR) / (1 + FLOOR), 1.0, -FLOOR)
    else:
        rows = rng.uniform(-FLOOR, 2 * mean + FLOOR, (streams, 100))
    wrong = known = 0
    for row in rows.tolist():
        evidence, bounds = Evidence(LEVEL, TOLERANCE, FLOOR), []
        for x in row:
            evidence(x)
            bounds.append(evidence.bound)
        found = [bound for bound in bounds if bound is not None]
        known += bool(found)
        wrong += any(bound > mean for bound in found)
    assert at_most(wrong / streams, LEVEL, streams)
    assert kind == "rare" or known > streams / 2  # else nothing was shown


def test_the_bound_rises_towards_the_mean():
    evidence = Evidence(LEVEL, TOLERANCE, FLOOR)
    bounds = []
    for _ in range(200):
        evidence(0.3)
        bounds.append(-1 if evidence.bound is None else evidence.bound)
    assert all(one <= two for one, two in pairwise(bounds))
    assert 0.25 < bounds[-1] <= 0.3


@pytest.mark.parametrize("after", [3, 20])
def test_its_buffers_are_its_state(after):
    rng = np.random.default_rng(4)
    observed = rng.uniform(-0.05, 0.4, 40).tolist()
    evidence = Evidence(LEVEL, TOLERANCE, FLOOR)
    run(evidence, observed[:after])
    again = Evidence(LEVEL, TOLERANCE, FLOOR)
    again.load_state_dict(evidence.state_dict())
    assert run(again, observed[after:]) == run(evidence, observed[after:])
    assert torch.equal(again.stakes, evidence.stakes) and again.bound == evidence.bound


def test_a_new_start_spends_of_the_level():
    """An alarm that is put back by a guard again and again is still one of the stated rate."""
    evidence = Evidence(LEVEL, TOLERANCE, FLOOR)
    goals = []
    for _ in range(4):
        goals.append(evidence.threshold)
        run(evidence, [0.5] * 30)
        assert evidence.rings
        evidence.start()
        assert not evidence.rings and evidence.bound is None
    levels = [math.exp(-goal) for goal in goals]
    assert levels == pytest.approx([LEVEL * share(k) for k in (1, 2, 3, 4)])


def test_the_shares_of_the_bets_add_up_to_the_level():
    """However many there are, and what comes late is left more than 1/(k (k + 1)) would leave."""
    bets = np.arange(1, 10**6)
    assert share(bets).sum() == pytest.approx(1 - 1 / (1 + np.log2(10**6)))
    assert share(1) == 0.5
    late = bets[bets >= 40]
    assert (share(late) > 1 / (late * (late + 1))).all()


@pytest.mark.parametrize(("before", "at_most"), [(0, 2), (100, 6)])
def test_harm_of_thirty_points_is_heard_within(before, at_most):
    """As docs/health.md says."""
    evidence = Evidence(0.8 * LEVEL, TOLERANCE, FLOOR)
    assert run(evidence, [0.0] * before) == []
    assert run(evidence, [0.3] * 20) == [at_most]
