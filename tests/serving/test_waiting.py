"""Lines of requests: in order, whole, and never longer than asked for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.serving.errors import BusyError
from holdfast.serving.waiting import Ticket, Waiting

NEVER = 1e9


def ticket(stream="a", images=1, came=0.0, due=NEVER, request=None, side=2):
    return Ticket(stream, torch.zeros(images, 3, side, side), came, due, request)


def taken(waiting, now=0.0, **options):
    found = waiting.take(now, **options)
    return {stream: [len(one.images) for one in batch] for stream, batch in found.items()}


def test_a_line_is_ready_when_it_is_full_or_its_first_is_due():
    waiting = Waiting(batch=4, limit=100)
    waiting.put(ticket("a", 1, due=5.0))
    waiting.put(ticket("a", 2, due=9.0))
    waiting.put(ticket("b", 1, due=7.0))
    assert waiting.due() == 5.0
    assert taken(waiting, now=4.9) == {}
    assert taken(waiting, now=5.0) == {"a": [1, 2]}
    waiting.put(ticket("c", 3))
    waiting.put(ticket("c", 1))
    assert waiting.due() == float("-inf")
    assert taken(waiting, now=0.0) == {"c": [3, 1]}
    assert waiting.due() == 7.0
    assert taken(waiting, now=7.0) == {"b": [1]}
    assert waiting.due() is None and not waiting


def test_a_request_stays_whole():
    waiting = Waiting(batch=4, limit=100)
    for count in (3, 2, 9, 1):
        waiting.put(ticket("a", count, due=0.0))
    assert taken(waiting) == {"a": [3]}
    assert taken(waiting) == {"a": [2]}
    assert taken(waiting) == {"a": [9]}
    assert taken(waiting) == {"a": [1]}


def test_images_of_different_sizes_do_not_share_a_batch():
    waiting = Waiting(batch=4, limit=100)
    waiting.put(ticket("a", 1))
    assert taken(waiting) == {}
    waiting.put(ticket("a", 1, side=3))
    assert taken(waiting) == {"a": [1]}
    assert taken(waiting) == {}


def test_more_than_may_wait_is_turned_away_and_changes_nothing():
    waiting = Waiting(batch=4, limit=5)
    waiting.put(ticket("a", 3))
    with pytest.raises(BusyError, match="again"):
        waiting.put(ticket("b", 3))
    assert waiting.images == 3 and list(waiting.lines) == ["a"]
    waiting.put(ticket("b", 2))
    assert [len(one.images) for one in waiting.withdraw("a")] == [3]
    assert waiting.images == 2 and waiting.withdraw("a") == []
    # Where nothing waits, even a large request has its turn.
    assert taken(waiting, everything=True) == {"b": [2]}
    waiting.put(ticket("b", 50))


def test_a_request_is_found_by_its_id():
    waiting = Waiting(batch=4, limit=100)
    first = ticket("a", request="x")
    waiting.put(first)
    assert waiting.find("a", "x") is first
    assert waiting.find("a", "y") is None and waiting.find("b", "x") is None


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), max_size=30),
    st.integers(1, 8),
)
def test_everything_leaves_once_and_in_order(requests, batch):
    waiting = Waiting(batch=batch, limit=10_000)
    sent = [ticket(stream, count) for stream, count in requests]
    for one in sent:
        waiting.put(one)
    left = []
    while waiting:
        found = waiting.take(0.0, everything=True)
        for stream, tickets in found.items():
            images = sum(len(one.images) for one in tickets)
            assert images <= batch or len(tickets) == 1
            assert all(one.stream == stream for one in tickets)
            left += tickets
    assert waiting.images == 0
    for stream in "abc":
        of_stream = [one for one in sent if one.stream == stream]
        assert [one for one in left if one.stream == stream] == of_stream
    assert len(left) == len(sent)


def test_what_is_put_back_comes_first_and_waits_however_much_there_is():
    waiting = Waiting(batch=4, limit=100)
    for count in (3, 2, 4):
        waiting.put(ticket("a", count, due=0.0))
    waiting.put_back(waiting.take(0.0)["a"], until=5.0)
    assert waiting.images == 9 and waiting.due() == waiting.due(everything=True) == 5.0
    assert taken(waiting, now=4.9, everything=True) == {}
    assert taken(waiting, now=5.0) == {"a": [3]}
    assert taken(waiting, now=5.0) == {"a": [2]}  # what comes next is not held
