"""What each kind of stream shows."""

from collections import Counter
from itertools import groupby, pairwise

import numpy as np
import pytest
import torch
from pools_for_tests import Counted, CountedData, shown, visited

from holdfast.data.corrupt.corruptions import CORRUPTIONS
from holdfast.data.streams import (
    Correlated,
    Endless,
    Gradual,
    LabelShift,
    Mixed,
    Noisy,
    Recurring,
    Single,
    Switching,
    parse,
)


def test_gradual_rises_and_falls():
    names = [name for name, _ in visited(Gradual().over(CountedData()).batches())]
    assert names[:9] == [f"gaussian_noise@{s}" for s in (1, 2, 3, 4, 5, 4, 3, 2, 1)]
    assert len(names) == 15 * 9
    names = [name for name, _ in visited(Gradual(first="falling").over(CountedData()).batches())]
    assert names[:6] == [f"gaussian_noise@{s}" for s in (5, 4, 3, 2, 1)] + ["shot_noise@1"]
    assert len(names) == 14 * 9 + 5


def test_gradual_says_what_it_needs():
    with pytest.raises(ValueError, match="one severity only"):
        Gradual().over({name: Counted() for name in CORRUPTIONS})


def test_mixed_pools_all_domains():
    batches = list(Mixed(batch=150).over(CountedData(1000)).batches())
    assert len(set(shown(batches))) == 15_000
    # In each batch, a domain has 10 of 150 on average: a chi-squared test over all batches.
    counts = np.array([[Counter(one.domains)[name] for name in CORRUPTIONS] for one in batches])
    statistic = ((counts - 10) ** 2 / 10).sum()
    degrees = 100 * 14
    assert abs(statistic - degrees) < 4 * (2 * degrees) ** 0.5


def test_single_shows_one_at_a_time():
    batches = list(Single().over(CountedData(3)).batches())
    assert [len(one.labels) for one in batches] == [1] * 48


def test_note_drops_a_batch_that_is_not_full():
    flow = parse("correlated(sampler=note)").over(CountedData(1000, 10))
    assert {plan.size for plan in flow.plans()} == {64}
    assert flow.samples == 15 * 960
    with pytest.raises(ValueError, match="fewer than 64 images"):
        parse("correlated(sampler=note)").over(CountedData(60, 4))


def test_switching_goes_from_clean_images_to_a_corruption_and_back():
    data = CountedData(1000)
    batches = list(Switching(order="fog,snow,frost", limit=100).over(data, seed=3).batches())
    names = ["original", "fog", "original", "snow", "original", "frost"]
    assert visited(batches) == [(name, 100) for name in names]
    turns = [(one.domains[0], one.visit) for one in batches[::2]]  # two batches each time
    assert turns == list(zip(names, (0, 0, 1, 1, 2, 2), strict=True))
    clean = [
        {index for _, index, _ in shown(one for one in batches if one.visit == visit)[:100]}
        for visit in range(3)
    ]
    # A tenth of the images each time, and few of them twice.
    assert [len(indices) for indices in clean] == [100] * 3
    assert len(set.union(*clean)) > 250
    again = list(Switching(order="fog", clean=True).over(data).batches())
    assert [name for name, _ in visited(again)] == ["original", "fog", "original"]
    assert len({tuple(one.labels.tolist()) for one in again}) == len(again)  # drawn anew
    assert len(Switching().domains()) == 30
    assert Switching(order="original,fog").domains() == ("original", "fog")
    with pytest.raises(ValueError, match="needs one or more: not order='original'"):
        Switching(order="original")


def test_recurring_visits_the_same_domains_in_draws_of_their_own():
    batches = list(Recurring(visits=3).over(CountedData(500)).batches())
    once = list(Correlated().over(CountedData(500)).batches())
    assert len(batches) == 3 * len(once)
    assert [one.visit for one in batches] == np.repeat([0, 1, 2], len(once)).tolist()
    names = [name for name, _ in visited(batches)]
    assert names == 3 * list(Correlated().domains())
    first, second, third = (batches[k::1][: len(once)] for k in (0, len(once), 2 * len(once)))
    assert shown(first) == shown(once)
    assert shown(first) != shown(second) != shown(third)
    assert sorted(shown(first)) == sorted(shown(second)) == sorted(shown(third))


def test_label_shift_over_domains():
    batches = list(LabelShift(steps=20, ratio=1e9).over(CountedData(50, 10)).batches())
    assert visited(batches) == [(name, 200) for name in CORRUPTIONS]
    runs = [len(list(run)) for _, run in groupby(label for _, _, label in shown(batches)[:200])]
    assert runs == [20] * 10


def test_noisy_mixes_in_as_many_images_of_no_class():
    batches = list(Noisy(order="fog,snow", batch=50).over(CountedData(1000)).batches())
    scored = torch.cat([one.scored for one in batches])
    labels = torch.cat([one.labels for one in batches])
    assert scored.sum() == 2000 and len(scored) == 4000
    assert torch.equal(labels >= 0, scored)
    names = Counter(name for one in batches for name in one.domains)
    assert names == dict.fromkeys(("fog", "fog/uniform", "snow", "snow/uniform"), 1000)
    assert all(
        ("/" in name) != bool(is_scored)
        for one in batches
        for name, is_scored in zip(one.domains, one.scored, strict=True)
    )
    # In a batch of 50 of 2000, the share is 25, with a hypergeometric spread of 3.5.
    shares = np.array([int(one.scored.sum()) for one in batches])
    assert 2.5 < shares.std() < 4.5
    noise = batches[0].images[~batches[0].scored]
    assert noise.min() >= 0 and noise.max() <= 1
    assert abs(noise.mean() - 0.5) < 0.1


def test_noisy_takes_the_intruders_it_is_given():
    with pytest.raises(ValueError, match="intruders=pool"):
        Noisy(kind="other").over(CountedData())
    flow = Noisy(kind="other", order="fog").over(CountedData(100), intruders=Counted(99, 70))
    batches = list(flow.batches())
    images = torch.cat([one.images for one in batches])
    scored = torch.cat([one.scored for one in batches])
    assert (images[~scored][:, 0] == 99).all() and len(images[~scored]) == 100
    assert set(images[~scored][:, 1, 0, 0].tolist()) == set(range(70))
    assert (images[scored][:, 0] != 99).all()


def test_intruders_have_the_shape_of_the_others():
    class Wide(Counted):
        def images(self, indices):
            return super().images(indices).expand(-1, 3, 2, 2).repeat(1, 1, 2, 2)

    with pytest.raises(ValueError, match="images of one shape"):
        list(Noisy(kind="other").over(CountedData(), intruders=Wide()).batches())


def test_endless_fades_from_one_corruption_into_the_next():
    data = CountedData(300)
    flow = Endless(speed=100, samples=20_050, severity=5).over(data, seed=3)
    found = visited(flow.batches())
    assert flow.samples == 20_050
    assert [size for _, size in found] == [100] * 200 + [50]

    def severities(name):
        return {part.split("@")[0]: float(part.split("@")[1]) for part in name.split("+")}

    levels = [severities(name) for name, _ in found]
    assert all(abs(sum(level.values()) - 5) < 1e-9 and len(level) <= 2 for level in levels)
    for before, after in pairwise(levels):
        names = before.keys() | after.keys()
        steps = [after.get(name, 0) - before.get(name, 0) for name in names]
        assert sorted(steps) == [-0.25, 0.25]
    alone = [next(iter(level)) for level in levels if len(level) == 1]
    assert len(alone) == 11
    assert all(a != b for a, b in pairwise(alone))


@pytest.mark.parametrize(("speed", "samples"), [(130, 5000), (7, 1000), (30, 641), (16, 640)])
def test_endless_batches_do_not_tell_its_steps(speed, samples):
    flow = Endless(speed=speed, samples=samples).over(CountedData(300))
    sizes = [len(batch.labels) for batch in flow]
    full, tail = divmod(samples, 64)
    assert sizes == ([64] * (full - 1) + [65] if tail == 1 else [64] * full + [tail] * (tail > 0))
    assert sum(size for _, size in visited(flow)) == flow.samples == samples
    assert {size for _, size in visited(flow)[:-1]} == {speed}


def test_endless_ends_in_no_step_of_one_image():
    flow = Endless(speed=100, samples=2301).over(CountedData(300))
    assert [size for _, size in visited(flow.batches())] == [100] * 22 + [101]


def test_endless_tires_no_image_before_the_others():
    flow = Endless(speed=250, batch=250, samples=250 * 21).over(CountedData(100))
    counts = Counter(i for _, i, _ in shown([next(iter(flow))]))
    assert set(counts.values()) == {2, 3} and len(counts) == 100


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_paced_marks_what_comes_while_the_method_is_busy():
    clock = Clock()
    stream = parse("paced(rate=100,batch=10,order=fog,clean=false)")  # a batch each 0.1 s
    given = []
    for batch in stream.over(CountedData(120)).batches(clock=clock):
        if not batch.missed:
            given.append(batch.index)
            clock.now += 0.25 if len(given) < 3 else 0.05
        else:
            clock.now += 7  # whatever is done with a missed batch is not counted
    assert given == [0, 3, 6, 7, 8, 9, 10, 11]


def test_any_stream_can_be_paced_and_a_quick_method_misses_nothing():
    for spec in ("mixed(rate=1e6)", "correlated(rate=1e6)"):
        batches = list(parse(spec).over(CountedData()).batches(clock=Clock()))
        assert not any(one.missed for one in batches)
