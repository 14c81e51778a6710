"""What Prometheus is told."""

import numpy as np
import pytest
import torch
from plain_fleet import PlainFleet, pictures
from prometheus_client.parser import text_string_to_metric_families

from holdfast.engine.health import Health
from holdfast.serving.metrics import ACTIVE, collect, exposition
from holdfast.serving.service import Service, ServiceOptions
from holdfast.serving.tally import BOUNDS, RECENT, Tally
from holdfast.serving.telling import tell_briefly, tell_streams
from holdfast.serving.watching import Seen, Watched


@pytest.fixture
def service(tmp_path):
    fleet = PlainFleet(tmp_path)
    made = Service(fleet, ServiceOptions(deadline=0.0, snapshot=1e6))
    yield made
    made.drain()


def samples(service):
    families = text_string_to_metric_families(exposition({"": collect(service)}).decode())
    return {
        (sample.name.removeprefix("holdfast_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


def test_counts_are_those_of_what_was_served(service):
    for stream, numbers in (("a", (1, 2)), ("b", (3,))):
        service.submit(stream, pictures(*numbers)).result(10)
    with pytest.raises(Exception, match="divide"):
        service.submit("a", torch.ones(1, 3, 2, 2)).result(10)
    service.snapshot("a").result(10)
    found = samples(service)
    assert found["images_total",] == 3
    assert found["steps_total", "applied"] == 2 and found["steps_total", "refused"] == 1
    assert found["snapshots_total",] == 1
    assert found["streams",] == 2
    assert found["state_age_seconds",] > 0
    assert found["step_seconds_count",] == found["step_seconds_bucket", "+Inf"] == 3


def test_streams_are_quantiles_and_only_the_worst_have_names(service):
    entropies = {f"s{index}": float(index) for index in range(20)}
    service.fleet.health = lambda stream: Health(
        entropy=entropies[stream], accuracy=1 - entropies[stream] / 20
    )
    for stream in entropies:
        service.submit(stream, pictures(1)).result(10)
    found = samples(service)
    for share in (0, 0.1, 0.5, 0.9, 1):
        expected = np.quantile(list(entropies.values()), share)
        assert found["entropy", f"{share:g}"] == pytest.approx(expected)
    named = {key[1] for key in found if key[0] == "entropy_worst"}
    assert named == {"s15", "s16", "s17", "s18", "s19"}
    lowest = {key[1]: value for key, value in found.items() if key[0] == "estimated_accuracy_worst"}
    assert lowest.keys() == named and lowest["s19"] == pytest.approx(0.05)
    assert len([key for key in found if len(key) > 1 and key[1].startswith("s")]) <= 5 * 6


def test_streams_that_have_gone_quiet_say_nothing_of_now(service):
    for stream in "ab":
        service.submit(stream, pictures(1)).result(10)
    service.watched._seen["a"].at -= ACTIVE + 1
    assert {key[1] for key in samples(service) if key[0] == "entropy_worst"} == {"b"}


def test_times_are_counted_below_their_bounds():
    tally = Tally()
    for seconds in (0.001, 0.005, 0.02, 99.0):
        tally.steps.add(seconds)
    assert tally.steps.counts[0] == 2 and tally.steps.counts[-1] == 1
    assert sum(tally.steps.counts) == 4 and len(tally.steps.counts) == len(BOUNDS) + 1
    assert tally.steps.total == pytest.approx(99.026)


def test_the_rate_is_that_of_the_last_ten_seconds():
    tally = Tally()
    tally.answered(100, now=0.0)
    tally.answered(30, now=RECENT)
    assert tally.rate(now=RECENT) == 13
    assert tally.rate(now=RECENT + 1) == 3
    tally.answered(10, now=3 * RECENT)
    assert tally.rate(now=3 * RECENT) == 1 and tally.images == 140


def test_the_largest_share_follows_what_is_predicted():
    seen = Seen()
    assert seen.largest is None
    seen.take(torch.eye(4))
    assert seen.largest == 0.25
    for _ in range(5000):
        seen.take(torch.eye(4)[:1])
    assert seen.largest > 0.999
    for _ in range(5000):  # what was predicted long ago is forgotten
        seen.take(torch.eye(4)[1:2])
    assert seen.largest > 0.999


def test_health_is_looked_at_again_when_there_is_news(tmp_path, caplog):
    fleet = PlainFleet(tmp_path)
    looks = []
    fleet.health = lambda stream: looks.append(stream) or Health()
    watched = Watched(fleet)
    for _ in range(3):
        watched.saw("a", torch.eye(2), [])
    assert looks == ["a"]
    watched.saw("a", torch.eye(2), ["tent has collapsed"])
    assert looks == ["a", "a"] and "stream a: tent has collapsed" in caplog.text


def test_those_that_need_somebody_are_told_first(service):
    service.fleet.health = lambda stream: Health(alarm=stream == "rings", advice="reset it")
    for stream in ("rings", "old", "new"):
        service.submit(stream, pictures(1)).result(10)
    service.keeper.troubles["damaged"] = "It is damaged: reset it."
    told = tell_streams(service)
    assert [one["stream"] for one in told["streams"]] == ["damaged", "rings", "new", "old"]
    assert (told["alarms"], told["troubles"], told["streams_served"]) == (1, 1, 3)
    assert [one["stream"] for one in tell_streams(service, most=1)["streams"]] == ["damaged"]
    assert tell_briefly(service).startswith("3 images of 3 streams, ")
