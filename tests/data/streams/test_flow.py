import pickle
import tracemalloc
from collections import Counter

import numpy as np
import pytest
import torch
from pools_for_tests import Counted, CountedData, shown, visited

from holdfast.data import streams
from holdfast.data.corrupt.corruptions import CORRUPTIONS
from holdfast.data.pools import Made
from holdfast.data.streams import (
    Continual,
    Mixed,
    Noisy,
    parse,
)
from holdfast.data.streams.flow import count_batches

ALL = [
    "continual", "continual(order=random)", "gradual", "mixed", "correlated",
    "correlated(sampler=note,gamma=1,batch=32)", "correlated(sampler=sort)",
    "recurring(visits=2)", "single", "switching",
    "labelshift(ratio=10,steps=7)", "noisy", "endless(samples=5000,speed=130)",
]  # fmt: skip


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


@pytest.mark.parametrize(
    "spec",
    [
        "continual", "gradual(limit=8000)", "mixed", "correlated", "correlated(sampler=note)",
        "recurring(limit=5000)", pytest.param("single", marks=pytest.mark.slow),
        "switching(limit=35000)", "labelshift(steps=7000)", "noisy(limit=35000)",
        "endless(samples=1000000)", "endless(samples=1000000,speed=200)", "paced",
    ],
)  # fmt: skip
def test_a_million_samples_in_flat_memory(spec):
    pool = Counted(0, 70_000, 10)
    data = Made(pool)  # whatever is asked for is made of the same pool, when images are read
    flow = parse(spec).over(data)
    list(zip(range(3), flow.plans(), strict=False))
    tracemalloc.start()
    try:
        samples = sum(plan.size for plan in flow.plans())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert samples >= 1_000_000 - 15 * 64
    # A million images of 32×32 are 12 GB; only the order of one stretch is ever held.
    assert peak < 40e6
