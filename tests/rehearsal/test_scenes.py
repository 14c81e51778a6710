"""The streams of a rehearsal show hold-out corruptions of the images given, and nothing else."""

import numpy as np
import pytest
import torch
from rehearsing import BATCH, loader
from toys import CLASSES

from holdfast.data.corrupt.corruptions import CORRUPTIONS, HOLDOUT
from holdfast.rehearsal.images import part, read
from holdfast.rehearsal.scenes import Level, scenes

SEVERITIES = (1, 3, 5)
SHORT, LONG = Level.of(0, BATCH), Level.of(1, BATCH)


@pytest.fixture(scope="module")
def shown():
    return part(read(loader(30), CLASSES, None, BATCH), seed=0).shown


def over(shown, name, level=LONG, seed=0):
    every = scenes((), BATCH)
    place = [one.name for one in every].index(name)
    return every[place].over(shown, level, SEVERITIES, place, seed)


def domains(flow):
    return {domain for batch in flow for domain in batch.domains}


@pytest.mark.parametrize("name", ["continual", "small batches", "correlated"])
def test_every_severity_of_every_hold_out_corruption_comes_and_no_other(shown, name):
    expected = {f"{corruption}@{severity}" for corruption in HOLDOUT for severity in SEVERITIES}
    assert domains(over(shown, name)) == {"original", *expected}
    assert not set(HOLDOUT) & set(CORRUPTIONS)


def test_in_a_first_rung_each_corruption_comes_once_and_streams_share_the_severities(shown):
    found = [domains(over(shown, name, SHORT)) for name in ("continual", "correlated")]
    assert all(len(names) == 1 + len(HOLDOUT) for names in found)
    assert found[0] != found[1]
    assert {name.partition("@")[2] for names in found for name in names} == {"", "1", "3", "5"}


def test_clean_images_are_as_they_were(shown):
    flow = over(shown, "clean")
    known = {bytes(one.numpy()) for one in shown.raw(range(len(shown)))}
    shown_again = [one for batch in flow for one in (batch.images * 255).round().byte()]
    assert domains(flow) == {"original"} and len(shown_again) == 4 * BATCH
    assert {bytes(one.numpy()) for one in shown_again} <= known


def test_domains_show_different_images_as_far_as_there_are(shown):
    flow = over(shown, "continual", SHORT)
    pools = [flow.view.pool(stretch.origins[0]) for stretch in flow.stretches]
    rows = [getattr(pool, "clean", pool).raw(range(BATCH)) for pool in pools]
    assert len({bytes(one.numpy()) for some in rows for one in some}) == 5 * BATCH


def test_labels_come_in_runs_where_they_are_correlated(shown):
    def classes_in_a_batch(name):
        return np.mean([len(batch.labels.unique()) for batch in over(shown, name)])

    assert classes_in_a_batch("correlated") < classes_in_a_batch("continual") - 1


def test_streams_are_the_same_for_everyone_and_others_under_another_seed(shown):
    one, same, other = (
        torch.cat([batch.images for batch in over(shown, "recurring", seed=seed)])
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_small_batches_are_small_and_levels_double(shown):
    assert {len(batch.labels) for batch in over(shown, "small batches")} == {2}
    sizes = [over(shown, "continual", Level.of(number, BATCH)).samples for number in range(4)]
    assert sizes == [5 * BATCH, 13 * BATCH, 26 * BATCH, 52 * BATCH]


def test_streams_of_ones_own(shown):
    (mixed,) = scenes(["mixed(batch=8)"], BATCH)
    flow = mixed.over(shown, SHORT, SEVERITIES, 0, 0)
    assert {len(batch.labels) for batch in flow} == {8}
    assert max(len(set(batch.domains)) for batch in flow) > 1


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["endless"], "cannot show endless"),
        (["gradual"], "cannot show gradual"),
        (["paced"], "cannot show paced"),
        (["noisy(kind=other)"], "cannot show noisy"),
        (["continual(order=fog)"], "leave order and limit out"),
        (["continual(limit=3)"], "leave order and limit out"),
        (["clean"], "name another stream too"),
        (["continual", "continual"], "named twice"),
        (["continul"], "Did you mean 'continual'"),
    ],
)
def test_streams_that_cannot_be_rehearsed(names, expected):
    with pytest.raises(ValueError, match=expected):
        scenes(names, BATCH)
