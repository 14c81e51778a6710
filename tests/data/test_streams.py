import pickle
from collections import Counter
from itertools import groupby, pairwise

import numpy as np
import pytest
import torch
from pools_for_tests import Counted, CountedData

from holdfast.data import streams
from holdfast.data.corrupt.corruptions import CORRUPTIONS
from holdfast.data.pools import Made
from holdfast.data.streams import (
    Continual,
    Correlated,
    Endless,
    Gradual,
    LabelShift,
    Mixed,
    Noisy,
    Recurring,
    Single,
    parse,
)
from holdfast.data.streams.flow import count_batches

ALL = [
    "continual", "continual(order=random)", "gradual", "mixed", "correlated",
    "correlated(sampler=note,gamma=1,batch=32)", "correlated(sampler=sort)",
    "recurring(visits=2)", "single",
    "labelshift(ratio=10,steps=7)", "noisy", "endless(samples=5000,speed=130)",
]  # fmt: skip


def shown(batches):
    """(domain, image index, label) of every sample, as its image says."""
    found = []
    for batch in batches:
        for name, image, label in zip(batch.domains, batch.images, batch.labels, strict=True):
            if label >= 0:
                assert image[2, 0, 0] == label
            found.append((name, int(image[1, 0, 0]), int(label)))
    return found


def visited(batches):
    """The domains in the order in which they come, with their sizes."""
    names = [name for batch in batches for name in batch.domains]
    return [(name, len(list(run))) for name, run in groupby(names)]


@pytest.mark.parametrize("spec", ALL)
def test_from_any_batch_on_it_goes_on_as_if_never_stopped(spec):
    whole = list(parse(spec).over(CountedData(), seed=1).batches())
    for start in (1, len(whole) // 2, len(whole) - 1, len(whole)):
        data = CountedData()
        flow = parse(spec).over(data, seed=1)
        rest = list(flow.batches(start=start))
        assert len(flow) == len(whole)
        assert [one.index for one in rest] == list(range(start, len(whole)))
        assert sum(len(one.labels) for one in rest) + 15 >= data.read  # 15: noise asks for a shape
        for one, other in zip(rest, whole[start:], strict=True):
            assert torch.equal(one.labels, other.labels) and one.domains == other.domains
            if "noisy" not in spec:
                assert torch.equal(one.images[:, 1:], other.images[:, 1:])


@pytest.mark.parametrize("spec", ALL)
def test_the_seed_decides_and_nothing_outside_is_touched(spec):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, same, other = (
        shown(parse(spec).over(CountedData(), seed=seed).batches()) for seed in (1, 1, 2)
    )
    assert first == same
    assert first != other
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()


@pytest.mark.parametrize("spec", ALL)
def test_an_adapter_gets_a_plain_tensor(spec):
    batch = next(parse(spec).over(CountedData()).batches())
    assert type(batch.images) is torch.Tensor
    assert not vars(batch.images)


@pytest.mark.parametrize("spec", ALL)
@pytest.mark.parametrize("size", [64, 65, 100, 129])
@pytest.mark.filterwarnings("ignore:.* are one batch each")
def test_no_batch_of_one_but_in_single(spec, size):
    flow = parse(spec).over(CountedData(size))
    sizes = [plan.size for plan in flow.plans()]
    assert sum(sizes) == flow.samples
    assert len(flow) == len(sizes)
    assert set(sizes) == {1} if spec == "single" else min(sizes) > 1 and max(sizes) <= 65


def test_tails():
    expected = {1: 1, 63: 1, 64: 1, 65: 1, 66: 2, 128: 2, 129: 2}
    assert {size: count_batches(size, 64) for size in expected} == expected
    assert [count_batches(size, 1) for size in (1, 2, 3)] == [1, 2, 3]


def test_continual_shows_each_image_of_each_domain_once():
    batches = list(Continual().over(CountedData()).batches())
    assert visited(batches) == [(name, 100) for name in (*CORRUPTIONS, "original")]
    assert len(set(shown(batches))) == 1600
    orders = {tuple(i for name, i, _ in shown(batches) if name == one) for one in CORRUPTIONS}
    assert len(orders) == 15  # each domain is shuffled by itself
    assert list(range(100)) not in map(list, orders)


def test_domains_of_ones_own():
    data = {"day": Counted(1, 70), "night": Counted(2, 90)}
    batches = list(Continual(order="day,night", clean=False).over(data).batches())
    assert visited(batches) == [("day", 70), ("night", 90)]


def test_one_domain_of_ones_own():
    flow = Continual(order="camera", clean=False).over({"camera": Counted(1, 70)})
    assert visited(flow) == [("camera", 70)]
    assert visited(parse("continual(order=camera,clean=false)").over({"camera": Counted(1, 70)}))


@pytest.mark.parametrize(
    ("order", "data", "says"),
    [
        ("cammera", {"camera": Counted()}, "Did you mean 'camera'"),
        ("day,nihgt", {"day": Counted(), "night": Counted()}, "Did you mean 'night'"),
        ("roota", {"day": Counted()}, "Did you mean 'rotta'"),
        ("foggy", Made(Counted()), "no corruption 'foggy'.*Did you mean 'fog'"),
        ("fog", {"day": Counted()}, "shows fog, and the data set does not have it"),
    ],
)
def test_names_are_checked_where_the_data_are_known(order, data, says):
    with pytest.raises(ValueError, match=says):
        Continual(order=order, clean=False).over(data)


def test_a_limit_keeps_all_classes_of_a_sorted_set():
    data = CountedData(labels=np.repeat(np.arange(10), 30))
    batches = list(Continual(limit=50).over(data).batches())
    assert visited(batches)[0] == ("gaussian_noise", 50)
    labels = Counter(label for name, _, label in shown(batches) if name == "fog")
    assert labels == dict.fromkeys(range(10), 5)


def test_a_limit_keeps_all_classes_of_a_set_whose_classes_come_in_turns():
    """Every tenth of these images shows the same class."""
    data = CountedData(labels=np.tile(np.arange(10), 100))
    batches = list(Continual(limit=100).over(data).batches())
    seen = [(index, label) for name, index, label in shown(batches) if name == "fog"]
    labels = Counter(label for _, label in seen)
    assert set(labels) == set(range(10)) and max(labels.values()) <= 15
    assert len(set(seen)) == 100


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


def test_workers_read_the_same():
    before = torch.get_rng_state()
    flow = Noisy(order="fog,snow").over(CountedData(130), seed=5)
    for one, other in zip(flow.batches(1), flow.batches(1, workers=2), strict=True):
        assert torch.equal(one.images, other.images) and torch.equal(one.labels, other.labels)
        assert (one.domains, one.index) == (other.domains, other.index)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_seed_of_any_type():
    one, other = (shown(Mixed(limit=5).over(CountedData(), seed=s)) for s in (3, np.int64(3)))
    assert one == other


@pytest.mark.parametrize("spec", ALL)
def test_it_can_be_sent_to_a_worker(spec):
    flow = parse(spec).over(CountedData(), seed=5)
    sent = pickle.loads(pickle.dumps(flow))
    start = len(flow) - 1
    one, other = (next(each.batches(start)) for each in (flow, sent))
    assert torch.equal(one.labels, other.labels)


def test_what_cannot_be_streamed():
    with pytest.raises(ValueError, match="holds no images"):
        Continual().over(CountedData(0))
    with pytest.raises(ValueError, match="shows original, and the data set does not have it"):
        Continual().over({name: Counted() for name in CORRUPTIONS})
    with pytest.raises(ValueError, match="seed is a whole number"):
        Continual().over(CountedData(), seed=-1)
    with pytest.raises(ValueError, match="start is the number of a batch"):
        Continual().over(CountedData()).batches(start=-1)


def test_every_kind_is_tested_here():
    assert {spec.split("(")[0] for spec in ALL} | {"paced"} == set(streams.kinds())


def test_a_flow_shows_what_it_is():
    flow = parse("mixed(order='fog,snow',batch=30)").over(CountedData(), seed=3)
    assert repr(flow) == '<Flow mixed(batch=30,order="fog,snow"), seed 3: 200 images in 7 batches>'
    one = parse("continual(order=fog,clean=false,limit=1)").over(CountedData(), seed=3)
    assert repr(one).endswith(": 1 image in 1 batch>")
    assert eval(repr(flow.stream), {"Mixed": type(flow.stream)}) == flow.stream
    assert flow.stream.order in repr(flow.stream)
