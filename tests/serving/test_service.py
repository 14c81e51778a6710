"""The core of serving: nothing lost, mixed up, out of order or learnt twice."""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from plain_fleet import PlainFleet, picture, pictures

from holdfast.serving.errors import (
    BadRequestError,
    BusyError,
    ConflictError,
    DiskError,
    ServingError,
    StoppingError,
    UnknownStreamError,
)
from holdfast.serving.service import Service, ServiceOptions

LATER = 1e6  # seconds: a deadline that never comes


@pytest.fixture
def made(tmp_path):
    """Makes services on the same folder, and ends them."""
    services = []

    def make(fleet=None, **options):
        fleet = PlainFleet(tmp_path) if fleet is None else fleet
        services.append(Service(fleet, ServiceOptions(**{"deadline": 0.0, **options})))
        return services[-1]

    yield make
    for service in services:
        service.drain()


def ask(service, stream, *numbers, request=None):
    return service.submit(stream, pictures(*numbers), request).result(10)


def test_answers_are_each_streams_own_and_in_order(made):
    service = made()
    for at in range(5):
        for stream in ("a", "b"):
            number = at + 100 * (stream == "b")
            assert ask(service, stream, number).logits.tolist() == [[number, at]]


def test_64_clients_get_their_own_answers_and_every_image_is_learnt_once(made):
    """Some retry under the same id, as if they had not heard; in any order, at any time."""
    service = made(batch=8, deadline=0.002, remembered=10_000)
    streams = [f"s{index}" for index in range(16)]
    asked = {}

    def client(index):
        dice = random.Random(index)
        for turn in range(12):
            number, stream = 12 * index + turn, dice.choice(streams)
            futures = [
                service.submit(stream, picture(number), request=f"r{number}")
                for _ in range(dice.choice((1, 1, 2, 3)))
            ]
            rows = [future.result(30).logits.tolist() for future in futures]
            assert all(row == rows[0] for row in rows)
            ((told, _),) = rows[0]
            assert told == number
            asked[number] = stream

    with ThreadPoolExecutor(64) as pool:
        for done in [pool.submit(client, index) for index in range(64)]:
            done.result()
    assert len(asked) == 64 * 12
    for stream in streams:
        seen = service.fleet.seen(stream)
        assert sorted(seen) == sorted(number for number in asked if asked[number] == stream)
    assert service.tally.images == 64 * 12


def test_requests_of_a_stream_share_a_batch_by_size_or_deadline(made):
    service = made(batch=3, deadline=LATER)
    futures = [service.submit("a", picture(number)) for number in range(3)]
    assert [future.result(10).logits.tolist() for future in futures] == [
        [[number, number]] for number in range(3)
    ]
    assert service.fleet.steps == [{"a": 3}]
    alone = service.submit("a", picture(3))
    with pytest.raises(TimeoutError):
        alone.result(0.05)
    service.stop()
    assert alone.result(10).logits.tolist() == [[3, 3]]


def test_streams_that_wait_at_once_share_a_step_of_bounded_size(made, tmp_path):
    fleet, gate = PlainFleet(tmp_path, resident=3), threading.Event()
    fleet.pause = lambda: gate.wait(10)
    service = made(fleet, together=4)
    futures = [service.submit("first", picture(0))]
    while not service.tally.steps.counts and fleet.steps:
        time.sleep(0.001)
    futures += [service.submit(f"s{index}", pictures(1, 2)) for index in range(4)]
    futures += [service.submit(f"t{index}", picture(1)) for index in range(5)]
    gate.set()
    for future in futures:
        future.result(10)
    assert sum(map(len, fleet.steps)) == 10
    for step in fleet.steps:
        assert len(step) <= 3
        *most, _ = step.values()
        assert sum(most) < 4


def test_a_retry_gets_its_answer_and_nothing_is_learnt_again(made):
    service = made()
    first = ask(service, "a", 7, request="x")
    again = ask(service, "a", 7, request="x")
    assert not first.repeated and again.repeated
    assert torch.equal(first.logits, again.logits)
    assert ask(service, "b", 7, request="x").logits.tolist() == [[7, 0]]  # of another stream
    assert ask(service, "a", 8).logits.tolist() == [[8, 1]]
    assert service.fleet.seen("a") == [7, 8]


def test_a_retry_after_a_restart_gets_its_answer_too(made, tmp_path):
    service = made()
    first = ask(service, "a", 7, request="x")
    service.drain()
    again = ask(made(PlainFleet(tmp_path)), "a", 7, request="x")
    assert again.repeated and torch.equal(first.logits, again.logits)


def test_a_kill_costs_what_came_since_the_snapshot_and_its_retry_is_no_second_time(made, tmp_path):
    service = made(snapshot=LATER)
    ask(service, "a", 1, request="x")
    assert service.snapshot("a").result(10) == 1
    ask(service, "a", 2, request="y")
    restarted = made(PlainFleet(tmp_path))  # what is in the other one's memory is as if killed
    assert ask(restarted, "a", 2, request="y").repeated is False
    assert ask(restarted, "a", 1, request="x").repeated is True
    assert restarted.fleet.seen("a") == [1, 2]


def test_write_through_has_every_answer_on_disk(made, tmp_path):
    service = made(snapshot=0)
    for number in range(5):
        ask(service, "a", number, request=f"r{number}")
        assert service.fleet.saved("a") == list(range(number + 1))


def test_write_through_tells_nobody_what_is_not_on_disk(made):
    service = made(snapshot=0)
    ask(service, "a", 1)
    service.fleet.fail_to_save = OSError("disk full")
    for _ in range(2):
        with pytest.raises(DiskError, match="disk full"):
            ask(service, "a", 2, request="x")
    service.fleet.fail_to_save = None
    again = ask(service, "a", 2, request="x")
    assert again.logits.tolist() == [[2, 1]]
    assert service.fleet.saved("a") == [1, 2]


def test_a_changed_stream_is_saved_within_the_interval(made):
    service = made(snapshot=0.1)
    ask(service, "a", 1)
    ends = time.monotonic() + 10
    while service.tally.snapshots == 0:
        assert time.monotonic() < ends
        time.sleep(0.005)
    assert service.fleet.saved("a") == [1]
    assert service.keeper.age() == 0


def test_a_full_disk_is_tried_again(made, caplog):
    service = made(snapshot=0.01)
    service.fleet.fail_to_save = OSError("disk full")
    ask(service, "a", 1)
    ends = time.monotonic() + 10
    while service.tally.unsaved == 0:
        assert time.monotonic() < ends
        time.sleep(0.005)
    assert "stream a could not be saved, and will be tried again: disk full" in caplog.text
    service.fleet.fail_to_save = None
    assert service.drain() == []
    assert service.fleet.saved("a") == [1]


def test_draining_answers_what_waits_saves_everything_and_takes_nothing_more(made):
    service = made(batch=100, deadline=LATER, snapshot=LATER, together=3)
    futures = [service.submit(f"s{index % 5}", picture(index)) for index in range(20)]
    assert service.drain() == []
    for index, future in enumerate(futures):
        assert future.result(0).logits.tolist() == [[index, index // 5]]
        assert index in service.fleet.saved(f"s{index % 5}")
    for refuse in (lambda: service.submit("a", picture(1)), lambda: service.reset("a")):
        with pytest.raises(StoppingError, match="Ask another"):
            refuse()
    assert not service.ready and not service.failed


def test_what_drain_could_not_save_is_named(made):
    service = made(snapshot=LATER)
    ask(service, "a", 1)
    service.fleet.fail_to_save = OSError("disk full")
    assert service.drain() == ["a"]


def test_bad_images_cost_only_their_own_request(made):
    service = made(batch=3, deadline=LATER)
    good, bad = picture(1), torch.ones(1, 3, 2, 2)
    futures = [service.submit("a", images) for images in (good, bad, good)]
    assert futures[0].result(10).logits.tolist() == [[1, 0]]
    assert futures[2].result(10).logits.tolist() == [[1, 1]]
    with pytest.raises(BadRequestError, match="divide by 255"):
        futures[1].result(10)
    assert service.fleet.seen("a") == [1, 1]


def test_refused_images_begin_no_stream(made):
    service = made()
    with pytest.raises(BadRequestError):
        service.submit("new", torch.ones(1, 3, 2, 2)).result(10)
    assert service.fleet.streams() == [] and service.watched.all() == {}


def test_a_damaged_state_is_told_every_time_until_it_is_reset(made, tmp_path, caplog):
    (tmp_path / "a.json").write_text("{")
    service = made()
    for _ in range(2):
        with pytest.raises(ConflictError, match="damaged: reset"):
            ask(service, "a", 1)
    assert caplog.text.count("damaged") == 1
    assert service.keeper.troubles.keys() == {"a"}
    service.reset("a").result(10)
    assert ask(service, "a", 1).logits.tolist() == [[1, 0]]
    assert service.keeper.troubles == {}


@pytest.mark.parametrize("snapshot", [0, LATER])
def test_a_stream_that_another_has_taken_over_goes_on_from_there(made, snapshot):
    """Two servers on one folder: what the slower one has learnt is not written over the other's."""
    service = made(snapshot=snapshot)
    ask(service, "a", 1)
    service.snapshot("a").result(10)
    ask(service, "a", 2, request="x") if snapshot else None
    service.fleet.taken_over("a", by=[1, 50])
    if snapshot:
        assert service.snapshot().result(10) == 0
    else:
        with pytest.raises(ConflictError, match="another process"):
            ask(service, "a", 2, request="x")
    assert service.fleet.saved("a") == [1, 50]
    assert ask(service, "a", 2, request="x").logits.tolist() == [[2, 2]]
    assert service.keeper.troubles == {}
    assert service.drain() == [] and service.fleet.saved("a") == [1, 50, 2]


def test_reset_and_remove_come_after_what_waits(made):
    service = made(deadline=LATER)
    waits = service.submit("a", pictures(1, 2), request="x")
    service.reset("a").result(10)
    assert waits.result(0).logits.tolist() == [[1, 0], [2, 1]]
    assert service.fleet.saved("a") == []
    waits = service.submit("a", picture(3), request="x")  # what it once was answered is forgotten
    service.remove("a").result(10)
    assert waits.result(0).logits.tolist() == [[3, 0]]
    assert service.fleet.streams() == []
    for order in (service.reset, service.remove, service.snapshot):
        with pytest.raises(UnknownStreamError, match="'a'"):
            order("a").result(10)


def test_too_much_is_turned_away_and_changes_nothing(made, tmp_path):
    service = made(deadline=LATER, waiting=3, streams=2)
    futures = [service.submit("a", pictures(1, 2)), service.submit("b", picture(3))]
    with pytest.raises(BusyError, match="3 images wait already"):
        service.submit("a", picture(4))
    service.snapshot("a").result(10)
    service.snapshot("b").result(10)
    assert all(future.done() for future in futures)
    third = service.submit("c", picture(5))
    with pytest.raises(UnknownStreamError):
        service.snapshot("c").result(10)
    with pytest.raises(BusyError, match="2 streams already"):
        third.result(10)
    assert service.fleet.streams() == ["a", "b"]
    assert service.tally.turned_away == {"waiting": 1, "streams": 1}


def test_a_request_that_was_cancelled_is_not_learnt(made):
    service = made(deadline=LATER)
    gone, stays = service.submit("a", picture(1)), service.submit("a", picture(2))
    assert gone.cancel()
    service.snapshot("a").result(10)
    assert stays.result(10).logits.tolist() == [[2, 0]]


def test_a_fault_fails_its_requests_and_the_service_goes_on(made, caplog):
    service = made()

    def fault():
        raise RuntimeError("out of memory")

    service.fleet.pause = fault
    with pytest.raises(ServingError, match="out of memory"):
        ask(service, "a", 1)
    service.fleet.pause = lambda: None
    assert ask(service, "a", 1).logits.tolist() == [[1, 0]]
    assert "it goes on" in caplog.text


def test_a_service_that_cannot_go_on_says_so_to_everybody(made, caplog):
    service, gate = made(), threading.Event()

    def die():
        gate.wait(10)
        raise SystemExit

    service.fleet.pause = die
    asked = [service.submit(stream, picture(1)) for stream in "ab"]
    gate.set()
    for future in asked:
        with pytest.raises(ServingError):
            future.result(10)
    service._thread.join(10)
    with pytest.raises(StoppingError, match="started again"):
        service.submit("a", picture(1))
    assert service.failed and not service.ready
    assert "start it again" in caplog.text


@pytest.mark.parametrize(
    ("option", "value"),
    [("batch", 0), ("waiting", 1.5), ("deadline", -1), ("snapshot", float("nan")), ("streams", 0)],
)
def test_options_that_make_no_sense_are_errors(option, value):
    with pytest.raises(ValueError, match=option):
        ServiceOptions(**{option: value})
