"""How long a stream is: what `limit` bounds, and what is said where it leaves too little."""

import math
import warnings
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pools_for_tests import Counted, CountedData

from holdfast.data import streams
from holdfast.data.streams import (
    Correlated,
    Endless,
    Gradual,
    LabelShift,
    Noisy,
    Recurring,
    Single,
    Switching,
    parse,
)

DOMAINS = "fog,snow,frost"


def times(stream):
    """How often `limit` images of a domain may come."""
    if isinstance(stream, Gradual):
        return 9  # severities
    if isinstance(stream, Recurring):
        return stream.visits
    return 2 if isinstance(stream, Noisy) else 1  # intruders


@settings(deadline=None)
@given(
    kind=st.sampled_from([*streams.kinds().values()]),
    limit=st.integers(1, 80),
    size=st.integers(10, 120),
    classes=st.integers(1, 12),
    batch=st.integers(8, 70),
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_limit_bounds_every_stream(kind, limit, size, classes, batch):
    given = {"order": DOMAINS, "limit": limit, "clean": False}
    given |= {} if kind is Single else {"batch": batch}
    given |= {"visits": 3} if kind is Recurring else {}
    stream = kind(**given)
    flow = stream.over(CountedData(size, classes))
    shown = Counter(name.split("@")[0].split("/")[0] for one in flow for name in one.domains)
    assert sum(shown.values()) == flow.samples
    if kind is Switching:  # before each of three domains
        assert shown.pop("original") == 3 * min(limit, size)
    assert sum(shown.values()) <= 3 * limit * times(stream)
    if kind is not Endless:  # which fades from domain to domain
        assert max(shown.values()) <= limit * times(stream)
    # It takes no more away than it says.
    if kind is not Endless and limit < size and limit <= 100 * min(size, classes):
        assert set(shown.values()) == {limit * times(stream)}


@pytest.mark.parametrize("name", streams.kinds())
def test_each_kind_says_what_its_limit_bounds(name):
    said = {one.name: one.meaning for one in streams.kinds()[name].settings()}["limit"]
    words = {"gradual": "severity", "recurring": "visit", "noisy": "as many intruders"}
    words |= {"endless": "images in all", "labelshift": "drawn", "switching": "each time"}
    assert words.get(name, "of each domain, evenly picked") in said


def test_endless_is_bounded_by_the_smaller_of_limit_and_samples():
    assert parse("endless").over(CountedData()).samples == 7_500_000
    with pytest.warns(UserWarning, match="1,500 images end before the second .* raise limit"):
        assert parse("endless(limit=100)").over(CountedData()).samples == 1500
    with pytest.warns(UserWarning, match="raise samples"):
        assert parse("endless(limit=100,samples=70)").over(CountedData()).samples == 70
    with pytest.warns(UserWarning, match="which takes 200 images"):  # just not there
        parse("endless(speed=10,samples=200)").over(CountedData())


def test_what_draws_again_draws_from_all_images_whatever_the_limit():
    """Else a limit would show the same few images again and again."""
    data = CountedData(400, 4)
    for stream in (
        LabelShift(order="fog", limit=100, steps=30, ratio=1),
        Endless(order="fog,snow", limit=100, speed=5),
    ):
        flow = stream.over(data, seed=1)
        indices = [int(image[1, 0, 0]) for batch in flow for image in batch.images]
        assert len(indices) == flow.samples
        assert len(set(indices)) > 0.7 * flow.samples


def test_a_limited_label_shift_is_the_start_of_the_whole_one():
    data = CountedData(50, 10)
    whole = [int(x) for one in LabelShift(order="fog", steps=20).over(data) for x in one.labels]
    with pytest.warns(UserWarning, match="after 3 of 10 classes have been the likely one"):
        flow = LabelShift(order="fog", steps=20, limit=50).over(data)
    assert [int(x) for one in flow for x in one.labels] == whole[:50]


@pytest.mark.parametrize(
    ("stream", "sizes", "says"),
    [
        (Correlated(order="a,b"), (64, 65), "2 of 2 domains are one batch each .*lower batch.$"),
        (Correlated(order="a,b"), (64, 66), "1 of 2 domains are one batch"),
        (Correlated(order="a,b", limit=40), (90, 90), "2 of 2 .*lower batch, or raise limit.$"),
        (Recurring(order="a,b", visits=3), (10, 10), "recurring: 2 of 2 domains"),
        (Correlated(order="a,b", sampler="sort", batch=100), (90, 90), "nothing is correlated"),
        (Correlated(order="a,b", sampler="sort", gamma=1), (90, 90), "gamma has no effect"),
        (
            Correlated(order="a,b", sampler="note", gamma=9, slots=3, batch=16),
            (90, 90),
            "slots has",
        ),
        (Correlated(order="a,b", order_seed=3), (90, 90), "order_seed has no effect on order=a,b"),
    ],
)
def test_a_stream_that_is_not_what_it_seems_says_so(stream, sizes, says):
    data = {name: Counted(k, size) for k, (name, size) in enumerate(zip("ab", sizes, strict=True))}
    with pytest.warns(UserWarning, match=says) as told:
        flow = stream.over(data)
    assert len(told) == len(flow.notices) == 1
    assert told[0].filename == __file__  # at the line of whoever asked for the stream


def test_a_stream_that_is_what_it_seems_says_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, kind in streams.kinds().items():
            assert kind().over(CountedData(100)).notices == (), name
        assert Endless(limit=math.ceil(20_002 / 15)).over(CountedData()).notices == ()
        assert Endless(speed=10, samples=202).over(CountedData()).notices == ()
        assert LabelShift(steps=20, limit=61).over(CountedData(100, 4)).notices == ()
        assert Correlated(order="random", order_seed=3).over(CountedData()).notices == ()


@pytest.mark.parametrize("spec", ["continual", "correlated", "noisy", "endless"])
def test_intruders_where_none_are_taken_are_an_error(spec):
    with pytest.raises(ValueError, match=r"takes no intruders.*write noisy\(kind=other\)"):
        parse(spec).over(CountedData(), intruders=Counted(99))


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("mixed(order=fog)", "not mixed with any"),
        ("recurring(visits=1,batch=10)", "nothing comes again"),
    ],
)
def test_a_stream_that_is_not_what_its_name_promises_says_so(spec, told):
    with pytest.warns(UserWarning, match=told):
        parse(spec).over(CountedData())
    name = spec.partition("(")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse(f"{name}(order='fog,snow',batch=10)").over(CountedData())
