"""Servers that share a folder: a stream goes from one to the other with all that it has learnt, and
never goes on in two ways."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from served import LATER, METHOD, alone, ask, batches, serving

import holdfast
from holdfast.fleet.sharing import Sharing
from holdfast.serving.errors import ConflictError
from holdfast.serving.moving import Moving


@pytest.fixture
def made(net, tmp_path):
    with serving(net, tmp_path, together=1) as make:
        yield make


@pytest.mark.parametrize("snapshot", [0, LATER])
def test_a_stream_that_moves_takes_along_what_was_never_saved(made, net, snapshot):
    servers = made(snapshot=snapshot), made(snapshot=snapshot)
    images = batches(count=8)
    for at, expected in enumerate(alone(net, images)):
        server = servers[(0, 1, 1, 0, 0, 1, 0, 1)[at]]
        answer = ask(server, "a", images[at], f"r{at}")
        torch.testing.assert_close(answer.logits, expected)
        # Whom the stream has left is asked again: it knows of the answer.
        assert ask(servers[at % 2], "a", images[at], f"r{at}").repeated
    assert servers[1].fleet.notes("a", look=True)["images"] == 48


def test_no_two_servers_ever_go_on_with_the_same_stream(made, net):
    """Many callers send to whichever server they like: what each is told fits one line of images,
    in some order, and no answer is of another line."""
    one = {"batch": 6}  # one request a step, so that an adapter can be shown the same batches
    servers = [made(**one), made(**one), made(**one, snapshot=0)]
    images = batches(count=24)
    order, lock = [], threading.Lock()

    def caller(number):
        dice = random.Random(number)
        for at in range(number, len(images), 4):
            answer = ask(dice.choice(servers), "a", images[at], f"r{at}")
            with lock:
                order.append((at, answer.logits))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(caller, number) for number in range(4)]:
            done.result()
    # Of callers that wait at the same time, nobody knows who came first; the state does.
    answers = dict(order)
    owner = next(s for s in servers if s.fleet.sharing._claims.owns("a"))
    notes = owner.ask(lambda fleet: fleet.notes("a", look=True)).result(60)
    learnt = [int(request[1:]) for request, *_ in notes["answers"]]
    assert sorted(learnt) == list(range(24)) and notes["images"] == 24 * 6
    for at, expected in zip(learnt, alone(net, [images[at] for at in learnt]), strict=True):
        torch.testing.assert_close(answers[at], expected)


def test_one_that_has_ended_without_a_word_is_not_waited_for(made, net):
    images = batches(count=3)
    first = made()
    ask(first, "a", images[0])
    first.snapshot("a").result(60)
    ask(first, "a", images[1])
    first._moving._sharing._presence._lock.release(
        force=True
    )  # as the system does when a process is killed
    began = time.monotonic()
    second = made()
    torch.testing.assert_close(
        ask(second, "a", images[2]).logits, alone(net, [images[0], images[2]])[1]
    )
    assert time.monotonic() - began < 5
    # It was not dead after all: it goes on from the other's state, once that is given to it.
    with pytest.warns(UserWarning, match="another process has taken it over"):
        ask(first, "a", images[1])
    assert first.fleet.notes("a", look=True)["images"] == 18


def test_one_that_does_not_answer_loses_the_stream_and_cannot_write_it(made, net, caplog):
    first, second = made(snapshot=0), made(snapshot=0)
    second._moving._patience = 0.3
    images = batches(count=3)
    ask(first, "a", images[0])
    busy, gate = threading.Event(), threading.Event()
    step = first.fleet.step

    def stuck(*arguments, **options):
        found = step(*arguments, **options)
        busy.set()
        gate.wait(60)
        return found

    first.fleet.step = stuck
    late = first.submit("a", images[1], "late")
    assert busy.wait(60)
    torch.testing.assert_close(
        ask(second, "a", images[2]).logits, alone(net, [images[0], images[2]])[1]
    )
    assert "did not hand it over within 0.3 seconds" in caplog.text
    gate.set()
    with pytest.raises(ConflictError, match="taken over by another process"):
        late.result(60)
    first.fleet.step = step
    # Sent again, it is learnt after what the other has learnt.
    again = ask(first, "a", images[1], "late")
    expected = alone(net, [images[0], images[2], images[1]])[2]
    torch.testing.assert_close(again.logits, expected)
    assert not again.repeated


def test_orders_wait_for_the_stream_too(made, net):
    first, second = made(), made()
    images = batches(count=2)
    ask(first, "a", images[0])
    second.reset("a").result(60)
    torch.testing.assert_close(ask(first, "a", images[1]).logits, alone(net, images[1:])[0])
    assert first.fleet.notes("a")["images"] == 6
    second.remove("a").result(60)
    assert first.fleet.streams() == []


def test_requests_of_a_moving_stream_keep_their_order_and_are_learnt_once(made, net):
    first, second = made(), made(batch=6)
    images = batches(count=5)
    ask(first, "a", images[0])
    asked = [second.submit("a", batch, f"r{at}") for at, batch in enumerate(images[1:])]
    again = [second.submit("a", batch, f"r{at}") for at, batch in enumerate(images[1:])]
    expected = alone(net, images)[1:]
    for future, other, logits in zip(asked, again, expected, strict=True):
        torch.testing.assert_close(future.result(60).logits, logits)
        torch.testing.assert_close(other.result(60).logits, logits)
    assert second.fleet.notes("a")["images"] == 30


def test_draining_waits_for_a_stream_on_its_way(made, net):
    first, second = made(), made()
    images = batches(count=2)
    ask(first, "a", images[0])
    late = second.submit("a", images[1])
    assert second.drain() == []
    torch.testing.assert_close(late.result(0).logits, alone(net, images)[1])


def test_those_that_end_leave_nothing_to_ask(made, tmp_path):
    for _ in range(2):
        service = made()
        ask(service, "a", batches(count=1)[0])
        service.drain()
    assert list((tmp_path / ".sharing").iterdir()) == []


def test_a_full_disk_keeps_a_stream_where_it_is(made, net, caplog):
    first, second = made(), made()
    images = batches(count=2)
    ask(first, "a", images[0])
    save = first.fleet.save

    def full(stream=None):
        raise OSError("disk full")

    first.fleet.save = full
    late = second.submit("a", images[1])
    with pytest.raises(TimeoutError):
        late.result(0.5)
    assert "disk full" in caplog.text
    first.fleet.save = save
    torch.testing.assert_close(late.result(60).logits, alone(net, images)[1])


def test_a_fleet_without_a_folder_shares_nothing(net, tmp_path):
    moving = Moving(holdfast.Fleet(net, METHOD))
    assert moving.is_here("a") and moving.next() is None
    assert isinstance(holdfast.Fleet(net, METHOD, folder=tmp_path).sharing, Sharing)
