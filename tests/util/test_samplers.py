from itertools import groupby, pairwise

import numpy as np
import pytest

from holdfast.util import samplers

LABELS = np.random.default_rng(0).permutation(np.arange(10_000) % 50)


def rng(seed=0):
    return np.random.default_rng(seed)


def runs(labels):
    return [len(list(run)) for _, run in groupby(labels.tolist())]


@pytest.mark.parametrize(
    "order",
    [
        samplers.shuffle(rng(), LABELS),
        samplers.sort(rng(), LABELS),
        samplers.rotta(rng(), LABELS, gamma=0.1),
        samplers.note(rng(), LABELS, beta=0.1),
        samplers.cycle(rng(), LABELS, count=len(LABELS)),
    ],
)
def test_each_sample_comes_once(order):
    assert np.array_equal(np.sort(order), np.arange(len(LABELS)))


def test_sort_goes_class_by_class():
    assert runs(LABELS[samplers.sort(rng(), LABELS)]) == [200] * 50


def blocks_by_definition(gamma, slots, classes, each, generator):
    """The number of non-empty (slot, class) blocks, drawn straight from the law."""
    ends = np.cumsum(generator.dirichlet([gamma] * slots, classes), axis=1)
    ends[:, -1] = 1
    edges = np.concatenate([np.zeros((classes, 1)), ends], 1) * each
    return int((np.diff(edges.astype(int), axis=1) > 0).sum())


@pytest.mark.parametrize("gamma", [0.01, 0.1, 1.0])
def test_rotta_draws_by_its_dirichlet_law(gamma):
    expected = [blocks_by_definition(gamma, 50, 50, 200, rng(k)) for k in range(100)]
    found = [len(runs(LABELS[samplers.rotta(rng(k), LABELS, gamma=gamma)])) for k in range(30)]
    # Now and then the blocks of one class meet at the border of two slots.
    spread = np.std(expected) * (1 / 30 + 1 / 100) ** 0.5
    assert abs(np.mean(found) - np.mean(expected)) < 4 * spread + 0.02 * np.mean(expected)


def test_rotta_with_much_concentration_fills_every_slot_alike():
    labels = np.arange(50 * 207) % 50
    order = samplers.rotta(rng(), labels, gamma=1e9, slots=10)
    ends = np.floor(20.7 * np.arange(11)).astype(int) * 50
    slots = [labels[order][low:high] for low, high in pairwise(ends)]
    for slot in slots:
        assert len(set(np.bincount(slot).tolist())) == 1
        assert len(runs(slot)) == 50  # one block a class
    assert len({tuple(dict.fromkeys(slot.tolist())) for slot in slots}) == 10  # permuted


def test_rotta_has_a_hundred_slots_at_most():
    labels = np.repeat(np.arange(200), 101)  # a slot gets 1.01 of each class, so one
    order = samplers.rotta(rng(), labels, gamma=1e9)
    for slot in labels[order][: 99 * 200].reshape(99, 200):
        assert np.array_equal(np.sort(slot), np.arange(200))


def test_note_draws_by_its_law():
    """Chunks are closed at N / C, so none grows far beyond it; runs are long."""
    order = samplers.note(rng(1), LABELS, beta=0.1)
    shuffled = len(runs(LABELS[samplers.shuffle(rng(), LABELS)]))
    assert len(runs(LABELS[order])) < shuffled / 8


def test_note_says_when_it_cannot():
    with pytest.raises(ValueError, match="wants 10 samples in each of 50 chunks"):
        samplers.note(rng(), LABELS[:400], beta=0.1)
    with pytest.raises(ValueError, match="in 3 tries"):
        samplers.note(rng(), np.arange(100) % 10, beta=1e-3, tries=3)


@pytest.mark.parametrize("ratio", [1, 9, 1000])
def test_label_shift_draws_the_likely_class_by_its_ratio(ratio):
    steps = 2000
    labels = np.arange(10_000) % 10
    order = samplers.shift_labels(rng(), labels, ratio=ratio, steps=steps)
    drawn = labels[order].reshape(10, steps)
    counts = np.stack([np.bincount(row, minlength=10) for row in drawn])
    likely, unlikely = ratio / (ratio + 9), 1 / (ratio + 9)
    if ratio > 1:
        assert sorted(counts.argmax(1)) == list(range(10))  # each class has its turn
    top = counts.max(1) if ratio > 1 else counts[:, 0]
    assert abs(top.mean() / steps - likely) < 4 * (likely * (1 - likely) / steps / 10) ** 0.5
    others = np.sort(counts, 1)[:, :-1] if ratio > 1 else counts
    assert abs(others.mean() / steps - unlikely) < 4 * (unlikely / steps / 90) ** 0.5 + 1e-9


def test_label_shift_draws_images_with_replacement_and_evenly():
    labels = np.arange(100) % 10
    order = samplers.shift_labels(rng(), labels, ratio=1e9, steps=1000)
    counts = np.bincount(order, minlength=100)
    statistic = ((counts - 100) ** 2 / 100).sum()
    assert abs(statistic - 90) < 4 * (2 * 90) ** 0.5  # each class's 1000 draws over its 10 images
