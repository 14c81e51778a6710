"""A recorder along a stream: curves, times, what the method did, loops of one's own, summaries."""

import json
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shown import (
    DOMAINS,
    NAN,
    STREAMS,
    C,
    Image,
    batch_of,
    mean,
    recorded,
)
from toys import CLASSES, stream, toy_net, toy_source

import holdfast
from holdfast.bench.metrics.recorder import Recorder
from holdfast.bench.metrics.seen import Seen
from holdfast.bench.metrics.tally import Durations
from holdfast.engine.last import Last, Watch

# Over time.


@given(st.lists(st.floats(1e-6, 1e5), min_size=1, max_size=200), st.sampled_from([50, 95]))
@settings(deadline=None)
def test_quantiles_of_time_are_exact_to_one_percent(times, percent):
    durations = Durations()
    for one in times:
        durations.add(one)
    enough = (
        one for one in sorted(times) if 100 * sum(t <= one for t in times) >= percent * len(times)
    )
    assert durations.quantile(percent) == pytest.approx(next(enough), rel=0.01)
    assert durations.seconds == pytest.approx(sum(times))


def test_times_out_of_range_and_no_times():
    assert math.isnan(Durations().quantile(50))
    for extreme in (0.0, 1e-9, 1e9):
        durations = Durations()
        durations.add(extreme)
        assert durations.quantile(50) == extreme


# What the method did.


def test_figures_of_what_the_method_did():
    images = [Image("snow", 0, 0, 0.5, 0.0)] * 4
    names = ("losses", "images", "reliable", "due", "stepped", "forwards", "backwards")
    names += ("time", "memory")
    taken = (
        ({"ema": 1.0, "src": 4.0}, {"ema": 2, "src": 1}, 2, True, True, 1, 1, 0.1, 50.0),
        ({"ema": 2.0}, {"ema": 3}, 3, True, True, 3, 1, 0.3, 70.0),
        # An optimiser that goes on by its momentum takes no step of its own.
        ({}, {}, 0, True, True, 1, 0, 0.1, 60.0),
    )
    recorder = Recorder(C)
    for did in taken:
        recorder.update(batch_of(images, **dict(zip(names, did, strict=True))))
    poisoned = {"losses": {"ema": NAN}, "images": {"ema": 4}, "refused": "NaN", "forwards": 1}
    recorder.update(batch_of(images, **poisoned))
    did = ({"ema": 9.0}, {"ema": 4}, 4, True, True, 9, 9, 9.0, NAN)
    missed = dict(zip(names, did, strict=True))
    recorder.update(batch_of(images, **missed, missed=True))
    found = recorder.summary()
    expected = {
        "batches": 5,
        "missed": 1,
        "refused": 1,
        "images": 20,
        "steps": 2,
        "steps_due": 3,
        "step_rate": 2 / 3,
        "forwards": 6 / 4,
        "backwards": 2 / 4,
        "reliable": 5 / 12,
        "loss/ema": 1.5,
        "rate/ema": 2 / 4,
        "share/ema": 5 / 16,
        "loss/src": 4.0,
        "rate/src": 1 / 4,
        "share/src": 1 / 16,
        "time_total": 0.5,
        "time_images_per_second": 12 / 0.5,
        "memory_peak": 70.0,
        "collapse": None,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_median_and_p95_of_time():
    recorder = Recorder(C)
    for seconds in range(100, 0, -1):
        recorder.update(batch_of([Image("snow", 0, 0, 0.5, 0.0)], time=float(seconds)))
    found = recorder.summary()
    assert found["time_median"] == pytest.approx(50, rel=0.0101)
    assert found["time_p95"] == pytest.approx(95, rel=0.0101)


def test_collapse_is_the_first_batch_at_which_the_watch_rings():
    good = [Image("snow", n % C, n % C, 0.5, 0.0) for n in range(50)]
    bad = [Image("snow", n % C, 2, 0.5, 0.0) for n in range(50)]
    batches = [good] * 20 + [bad] * 60 + [good] * 60 + [bad] * 60
    watch = Watch(C)
    rings = [watch(torch.tensor([one.predicted for one in images])) for images in batches]
    assert sum(rings) == 2
    recorder = Recorder(C)
    recorder.update(batch_of([Image("snow", 0, -1, 0.0, 1.0)] * 50))  # a batch of NaN rings nothing
    for number, images in enumerate(batches):
        recorder.update(batch_of(images, 1000 + number))
    assert recorder.collapse == recorder.summary()["collapse"] == 1000 + rings.index(True)
    assert recorded(*[good] * 60).collapse is None


def test_a_run_whose_logits_turn_nan_goes_on_and_is_wrong():
    recorder = Recorder(3)
    logits = torch.tensor([[0.0, 4, 0], [NAN, 0, 0], [NAN, NAN, NAN], [0, 0, 4]])
    recorder.update(Seen.of(logits, [1, 1, 2, 2], "snow", batch=0))
    recorder.update(Seen.of(torch.full((2, 3), NAN), [0, 0], "fog", batch=1))
    snow, fog = recorder.domains.values()
    assert (snow.accuracy, snow.undefined, snow.predicted.tolist()) == (50, 2, [0, 1, 1])
    assert snow.bias == 0.5
    assert (fog.accuracy, fog.bias, fog.ece()) == (0, 1, 0)
    assert fog.entropy == pytest.approx(math.log(3))
    assert recorder.summary()["undefined"] == 4
    recorder.update(Seen.of(torch.full((2, 3), NAN), [-1, -1], "fog", batch=2))
    assert (recorder.intruders.images, recorder.intruders.correct) == (2, 0)


# A loop of one's own.


def test_a_loop_of_ones_own():
    net = toy_net()
    adapter = holdfast.adapt(net, "eata+debias", source=toy_source(net))
    recorder, right, lasts = Recorder(CLASSES), [], []
    for images in stream():
        labels = torch.arange(len(images)) % CLASSES
        logits = adapter(images)
        seen = recorder.record(logits, labels, domain="snow", last=adapter.last)
        assert seen.batch == len(lasts)
        right += (logits.argmax(1) == labels).tolist()
        lasts.append(adapter.last)
    found = recorder.summary()
    assert recorder.domains["snow"].accuracy == pytest.approx(100 * mean(right))
    assert found["step_rate"] == mean(one.stepped for one in lasts)
    assert 0 < found["step_rate"] < 1
    assert found["reliable"] == pytest.approx(sum(one.reliable for one in lasts) / len(right))
    for term in ("entropy", "ema", "src"):
        spoke = [one.losses[term] for one in lasts if term in one.losses]
        assert found[f"loss/{term}"] == pytest.approx(mean(spoke))
        assert found[f"rate/{term}"] == len(spoke) / len(lasts)
    assert found["time_total"] == pytest.approx(sum(one.seconds for one in lasts))
    assert found["time_images_per_second"] == pytest.approx(len(right) / found["time_total"])


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (torch.eye(C), [0] * 4, "for 5 images"),
        (torch.eye(C), [C] * C, f"label is {C}"),
        (torch.zeros(2, 4), [0, 0], r"have 4 classes, the recorder 5: make a Recorder\(4\)"),
        (torch.zeros(2, 6), [5, 5], r"have 6 classes, the recorder 5"),
        (torch.full((1, C), NAN), [0], "NaN or Inf.*nothing was recorded"),
        (torch.tensor([[1.0, 2, 3, 4, math.inf]]), [4], "NaN or Inf"),
    ],
)
def test_bad_input_is_an_error_that_changes_nothing(logits, labels, message):
    recorder = Recorder(C)
    recorder.record(torch.eye(C), range(C), last=Last(losses={"a": 1.0}), time=1.0)
    before = pickle.dumps(recorder)
    with pytest.raises(ValueError, match=message):
        recorder.record(logits, labels, domain="new", last=Last(losses={"b": 1.0}))
    assert pickle.dumps(recorder) == before


@pytest.mark.parametrize("column", ["label", "predicted"])
def test_a_row_of_a_model_with_more_classes_is_refused(column):
    recorder = Recorder(C)
    row = {**batch_of([Image("snow", 0, 0, 0.5, 0.0)], 7).row(), column: [C]}
    before = pickle.dumps(recorder)
    with pytest.raises(ValueError, match="Batch 7 has class 5; the recorder has 5 classes"):
        recorder.update(Seen.from_row(row))
    assert pickle.dumps(recorder) == before


def test_classes_are_counted_in_whole_numbers():
    with pytest.raises(ValueError, match="classes is a whole number from 1"):
        Recorder(0)


# Summaries, and memory.


def test_a_summary_of_nothing_is_json_without_nan():
    found = Recorder(C).summary()
    json.dumps(found, allow_nan=False)
    counts = {"images", "batches", "missed", "refused", "intruders", "undefined"}
    counts |= {"steps", "steps_due"}
    assert {name for name, value in found.items() if value is not None} == counts
    assert all(found[name] == 0 for name in counts)


@given(STREAMS, st.floats(1e-3, 10), st.floats(1, 1e5))
@settings(deadline=None)
def test_a_summary_is_json_and_only_time_and_memory_differ_from_run_to_run(images, time, memory):
    def summary(factor):
        recorder = Recorder(C)
        did = {"losses": {"ema": 1.0}, "time": factor * time, "memory": factor * memory}
        recorder.update(batch_of(images, **did))
        return recorder.summary()

    one, other = summary(1), summary(2)
    assert json.loads(json.dumps(one, allow_nan=False)) == one
    differ = {name for name in one if one[name] != other[name]}
    assert differ == {name for name in one if "time" in name or "memory" in name}


def test_a_summary_holds_the_figures_of_each_domain():
    recorder = recorded([Image(domain, 0, n % 2, 0.7, 0.3) for n, domain in enumerate(DOMAINS)])
    found = recorder.summary()
    for domain, tally in recorder.domains.items():
        assert found[f"accuracy/{domain}"] == tally.accuracy
        assert found[f"ece_20/{domain}"] == tally.ece(20)
        assert found[f"images/{domain}"] == 1


def test_memory_does_not_grow_with_the_stream():
    def size(batches):
        recorder = Recorder(C)
        draws = np.random.default_rng(0)
        for number in range(batches):
            seen = batch_of(
                [Image(DOMAINS[number % 2], number % C, 1, 0.5, 0.2)] * 3,
                number,
                losses={"ema": draws.random()},
                images={"ema": 3},
                time=draws.random(),
                memory=draws.random(),
            )
            recorder.update(seen)
        return len(pickle.dumps(recorder))

    # Larger numbers take some bytes more.
    assert abs(size(10_000) - size(10)) < 100
