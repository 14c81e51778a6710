"""What the balanced memories keep, by chance; the exact tests of methods go by evict=oldest."""

from collections import Counter

import pytest
import torch

from holdfast.engine.draws import Draws
from holdfast.parts import BalancedMemory, FifoMemory

CLASSES = 4
TRIALS = 2000


def memory(capacity=5, seed=0, **options):
    options = {"evict": "random"} | options
    draws = Draws(seed, torch.device("cpu"))
    return BalancedMemory(capacity, CLASSES, draws, **options)


def add(kept, *labels, sure=20.0):
    """Images of these labels, each of which holds the number with which it came."""
    for label in labels:
        logits = torch.zeros(1, CLASSES)
        logits[0, label] = sure
        kept.add(torch.full((1, 1, 1, 1), float(kept.clock)), logits)


def held(kept):
    return [int(item.image) for item in kept.items]


def shares(runs):
    """How often each outcome was met."""
    counts = Counter(runs)
    return {outcome: count / len(runs) for outcome, count in counts.items()}


def about(expected):
    """Within four standard errors of a share over all trials."""
    return pytest.approx(expected, abs=4 * (expected * (1 - expected) / TRIALS) ** 0.5)


@pytest.mark.parametrize("sampled", [True, False])
def test_a_newcomer_of_a_smaller_class_replaces_any_of_the_largest_alike(sampled):
    """Classes 0 and 1 tie with two images each; class 2 has one."""
    gone, labels = [], []
    for seed in range(TRIALS):
        kept = memory(seed=seed, sampled=sampled)
        add(kept, 0, 0, 1, 1, 2, 2)
        (left,) = set(range(6)) - set(held(kept))
        gone.append(left)
        labels.append([0, 0, 1, 1, 2][left])
        assert held(kept)[-1] == 5
    assert shares(gone) == {place: about(1 / 4) for place in range(4)}
    assert shares(labels) == {0: about(1 / 2), 1: about(1 / 2)}


def test_of_a_class_among_the_largest_a_newcomer_comes_in_by_m_over_n():
    """n counts the newcomer: of three images of a class, two in memory, the third by 2/3; and it
    replaces either of the two alike."""
    found = []
    for seed in range(TRIALS):
        kept = memory(2, seed, sampled=True)
        add(kept, 0, 0, 0)
        found.append(tuple(held(kept)))
    assert shares(found) == {(0, 1): about(1 / 3), (0, 2): about(1 / 3), (1, 2): about(1 / 3)}


def test_images_seen_before_count_whether_they_stayed_or_not():
    """Of 12 of a class each is there with the same chance: reservoir sampling."""
    found = []
    for seed in range(TRIALS):
        kept = memory(3, seed, sampled=True)
        add(kept, *[1] * 12)
        found += held(kept)
        assert kept.seen == [0, 12, 0, 0]
    counts = Counter(found)
    assert {i: counts[i] / TRIALS for i in range(12)} == {i: about(3 / 12) for i in range(12)}


def test_not_sampled_a_newcomer_always_comes_in_for_any_of_its_class():
    gone = []
    for seed in range(TRIALS):
        kept = memory(4, seed)
        add(kept, 0, 1, 1, 1, 1)
        assert held(kept)[-1] == 4
        (left,) = set(range(5)) - set(held(kept))
        gone.append(left)
    assert shares(gone) == {place: about(1 / 3) for place in (1, 2, 3)}


def test_oldest_takes_the_first_largest_class_and_its_oldest_and_always():
    kept = memory(evict="oldest", sampled=True)
    add(kept, 3, 1, 1, 3, 0)
    add(kept, 0)  # classes 1 and 3 tie: class 1 goes by index, and of it the older
    assert held(kept) == [0, 2, 3, 4, 5]
    add(kept, 3)  # among the largest, with class 0
    assert held(kept) == [2, 3, 4, 5, 6]
    add(kept, 3, 3)
    assert held(kept) == [2, 4, 5, 7, 8]


def test_only_the_confident_are_considered_and_all_are_counted():
    kept = memory(threshold=0.5, evict="oldest")
    add(kept, 0, 1, sure=0.1)
    assert not kept.items and kept.clock == 2 and kept.seen == [0, 0, 0, 0]
    add(kept, 2)
    assert held(kept) == [2]
    exact = memory(threshold=1 / CLASSES, evict="oldest")
    add(exact, 0, sure=0.0)  # at least, not above
    assert held(exact) == [0]


def test_fifo_keeps_the_last():
    kept = FifoMemory(3, CLASSES)
    add(kept, 0, 1)
    assert held(kept) == [0, 1]
    add(kept, 1, 1, 0)
    assert held(kept) == [2, 3, 4]


def test_what_is_loaded_goes_on_as_before():
    one, other = memory(sampled=True), memory(sampled=True)
    assert one.state() == {}
    add(one, 0, 1, 1, 2, 2, 2, 3)
    other.load(one.state(), torch.device("cpu"))
    other.draws.state = one.draws.state
    for label in (1, 3, 1, 0, 2, 2):
        add(one, label)
        add(other, label)
        assert held(one) == held(other) and one.seen == other.seen
    one.load({}, torch.device("cpu"))
    assert (one.items, one.clock, one.seen) == ([], 0, [0] * CLASSES)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("seen", lambda t: t * 0),
        ("seen", lambda t: t[1:]),
        ("seen", lambda t: t + 0.5),
        ("labels", lambda t: t + CLASSES),
        ("labels", lambda t: t[1:]),
        ("born", lambda t: t + 100),
        ("clock", lambda t: t * 0),
    ],
)
def test_a_memory_that_no_stream_could_have_brought(name, change):
    kept, other = memory(), memory()
    add(kept, 0, 1, 2)
    saved = kept.state()
    with pytest.raises(ValueError, match=r"could not be|shorter|longer"):
        other.load({**saved, name: change(saved[name])}, torch.device("cpu"))
