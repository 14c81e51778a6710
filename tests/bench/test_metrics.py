"""Each figure against a plain computation that keeps every image."""

import json
import math
import pickle
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.classification import multiclass_calibration_error

import holdfast
from holdfast.bench.curve import Curve, Durations
from holdfast.bench.metrics import Recorder
from holdfast.bench.seen import Seen
from holdfast.guard import Watch
from holdfast.last import Last
from toys import CLASSES, stream, toy_net, toy_source

C = 5
NAN = math.nan
DOMAINS = ("snow", "fog", "original")


class Image(NamedTuple):
    domain: str
    label: int
    predicted: int
    confidence: float
    entropy: float


def borders():
    """Edges of both binnings as torch and as numpy round them, and their neighbours."""
    for bins in (15, 20):
        for edge in (*torch.linspace(0, 1, bins + 1).numpy(), *np.linspace(0, 1, bins + 1)):
            edge = np.float32(edge)
            yield from (edge, np.nextafter(edge, np.float32(0)), np.nextafter(edge, np.float32(1)))


BORDERS = sorted({float(one) for one in borders()})
CONFIDENCES = st.sampled_from(BORDERS) | st.floats(0, 1, width=32)
IMAGES = st.builds(
    Image,
    st.sampled_from(DOMAINS),
    st.integers(-1, C - 1),
    st.integers(0, C - 1),
    CONFIDENCES,
    st.floats(0, 1.5, width=32),
)
STREAMS = st.lists(IMAGES, min_size=1, max_size=60)


def batch_of(shown, number=0, /, **did):
    domains, labels, predicted, confidence, entropy = zip(*shown, strict=True)
    return Seen(
        number,
        0,
        domains,
        np.array(labels, np.int32),
        np.array(predicted, np.int32),
        np.array(confidence, np.float32),
        np.array(entropy, np.float32),
        **did,
    )


def recorded(*batches):
    recorder = Recorder(C)
    for number, images in enumerate(batches):
        recorder.update(batch_of(images, number))
    return recorder


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else math.nan


def is_close(one, other):
    return one == pytest.approx(other, rel=1e-9, abs=1e-12, nan_ok=True)


def bin_of(confidence, bins):
    """The last bin whose lower edge is not above; exactly 1 comes after all bins."""
    edges = torch.linspace(0, 1, bins + 1).tolist()
    return max(index for index, edge in enumerate(edges) if edge <= confidence)


def check(tally, images):
    """A tally of scored images against the images themselves."""
    assert tally.images == len(images)
    assert tally.correct == sum(one.label == one.predicted for one in images)
    assert is_close(tally.accuracy, 100 * mean(one.label == one.predicted for one in images))
    assert is_close(tally.entropy, mean(one.entropy for one in images))
    assert is_close(tally.confidence, mean(one.confidence for one in images))
    above = mean(one.confidence > np.float32(0.95).item() for one in images)
    assert is_close(tally.share_above, above)
    labels = Counter(one.label for one in images)
    predicted = Counter(one.predicted for one in images)
    assert tally.labels.tolist() == [labels[c] for c in range(C)]
    assert tally.predicted.tolist() == [predicted[c] for c in range(C)]
    if images:
        apart = (abs(predicted[c] / len(images) - labels[c] / len(images)) for c in range(C))
        assert is_close(tally.bias, sum(apart) / 2)
    for bins in (15, 20):
        assert is_close(tally.ece(bins), plain_ece(images, bins))
    check_diagram(tally.diagram(), images)


def plain_ece(images, bins):
    if not images:
        return math.nan
    error = 0.0
    for index in range(bins + 1):
        here = [one for one in images if bin_of(one.confidence, bins) == index]
        if here:
            right = mean(one.label == one.predicted for one in here)
            error += len(here) / len(images) * abs(right - mean(one.confidence for one in here))
    return error


def check_diagram(diagram, images):
    for index in range(20):
        here = [one for one in images if min(bin_of(one.confidence, 20), 19) == index]
        assert diagram.images[index] == len(here)
        right = 100 * mean(one.label == one.predicted for one in here)
        assert is_close(diagram.accuracy[index], right)
        assert is_close(diagram.confidence[index], mean(one.confidence for one in here))
        assert is_close(diagram.entropy[index], mean(one.entropy for one in here))
    assert all(len(each) == 20 for each in diagram)


def cut(images, places):
    """The images in batches, cut at the places."""
    places = sorted({0, len(images), *(place % len(images) for place in places)})
    return [images[a:b] for a, b in pairwise(places)]


@given(STREAMS, st.lists(st.integers(0, 100), max_size=6))
@settings(deadline=None)
def test_figures_are_those_of_the_images_however_they_were_cut_into_batches(images, places):
    recorder = recorded(*cut(images, places))
    scored = [one for one in images if one.label >= 0]
    assert list(recorder.domains) == list(dict.fromkeys(one.domain for one in scored))
    for domain, tally in recorder.domains.items():
        check(tally, [one for one in scored if one.domain == domain])
    check(recorder.total, scored)

    def accuracies(domains):
        of = {d: [one.label == one.predicted for one in scored if one.domain == d] for d in domains}
        return mean(100 * mean(right) for right in of.values() if right)

    assert is_close(recorder.mean_accuracy, accuracies(DOMAINS))
    assert is_close(recorder.mean_accuracy_corrupted, accuracies(("snow", "fog")))


def test_figures_of_confidences_on_every_border():
    images = [Image("snow", n % 2, 0, confidence, 0.25) for n, confidence in enumerate(BORDERS)]
    assert np.float32(0.95).item() in BORDERS and 1.0 in BORDERS
    check(recorded(images).total, images)


@given(STREAMS)
@settings(deadline=None)
def test_intruders_are_told_of_apart(images):
    recorder = recorded(images)
    intruders = [one for one in images if one.label < 0]
    assert recorder.intruders.images == len(intruders)
    assert is_close(recorder.intruders.confidence, mean(one.confidence for one in intruders))
    above = mean(one.confidence > np.float32(0.95).item() for one in intruders)
    assert is_close(recorder.intruders.share_above, above)
    assert recorder.total.images == len(images) - len(intruders)
    nothing = (recorder.intruders.accuracy, recorder.intruders.bias, recorder.intruders.ece())
    assert all(map(math.isnan, nothing))


@given(STREAMS, st.lists(st.integers(0, 100), max_size=6))
@settings(deadline=None)
def test_a_summary_does_not_depend_on_the_cut(images, places):
    whole, parts = recorded(images).summary(), recorded(*cut(images, places)).summary()
    assert whole.keys() == parts.keys()
    for name in whole.keys() - {"batches"}:
        one, other = (NAN if found[name] is None else found[name] for found in (whole, parts))
        assert is_close(one, other), name


# Calibration, against torchmetrics.


def torchmetrics_ece(images, bins):
    probabilities = torch.zeros(len(images), C)
    for row, one in zip(probabilities, images, strict=True):
        row[one.predicted] = one.confidence
    labels = torch.tensor([one.label for one in images])
    return float(multiclass_calibration_error(probabilities, labels, C, bins, "l1"))


@pytest.mark.parametrize("bins", [15, 20])
@given(st.lists(IMAGES.filter(lambda one: one.label >= 0 and one.confidence > 0), min_size=1))
@settings(deadline=None)
def test_ece_is_that_of_torchmetrics(bins, images):
    ours = recorded(images).total.ece(bins)
    assert ours == pytest.approx(torchmetrics_ece(images, bins), abs=1e-6)


@pytest.mark.parametrize("bins", [15, 20])
def test_ece_is_that_of_torchmetrics_on_every_border(bins):
    """One image on a border by itself, and one that is right in the bin's middle."""
    for confidence in BORDERS[1:]:
        for inside in (confidence - 0.4 / bins, confidence + 0.4 / bins):
            images = [
                Image("snow", 0, 1, confidence, 0.0),
                Image("snow", 0, 0, min(max(inside, 0.001), 1.0), 0.0),
            ]
            expected = torchmetrics_ece(images, bins)
            assert recorded(images).total.ece(bins) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("scale", [1, 8, 200])
def test_ece_of_logits_is_that_of_torchmetrics(scale):
    """At the largest scale many confidences are exactly 1."""
    draws = torch.Generator().manual_seed(scale)
    logits = scale * torch.randn(500, C, generator=draws)
    labels = torch.randint(0, C, (500,), generator=draws)
    recorder = Recorder(C)
    seen = [
        recorder.record(*batch) for batch in zip(logits.split(64), labels.split(64), strict=True)
    ]
    assert (scale == 200) == (sum(int((one.confidence == 1).sum()) for one in seen) > 100)
    assert recorder.total.accuracy == pytest.approx(
        100 * (logits.argmax(1) == labels).double().mean().item()
    )
    for bins in (15, 20):
        expected = float(multiclass_calibration_error(logits.softmax(1), labels, C, bins, "l1"))
        assert recorder.total.ece(bins) == pytest.approx(expected, abs=1e-6)


# Bias.

PAIRS = st.lists(st.tuples(st.integers(0, C - 1), st.integers(0, C - 1)), min_size=1)


def bias(pairs):
    return recorded([Image("snow", *pair, 0.5, 0.1) for pair in pairs]).total.bias


@given(PAIRS, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_bias_is_0_when_classes_are_predicted_as_often_as_they_are_there(pairs, random):
    labels = [label for label, _ in pairs]
    predicted = random.sample(labels, len(labels))
    assert bias(list(zip(labels, predicted, strict=True))) == 0


@given(PAIRS)
@settings(deadline=None)
def test_bias_is_1_when_no_class_predicted_is_there(pairs):
    assert bias([(label % 2, 2 + predicted % 3) for label, predicted in pairs]) == 1


@given(PAIRS, st.permutations(range(C)))
@settings(deadline=None)
def test_bias_knows_no_class_from_another_nor_predictions_from_labels(pairs, order):
    expected = bias(pairs)
    assert 0 <= expected <= 1
    assert bias([(order[label], order[predicted]) for label, predicted in pairs]) == expected
    assert bias([(predicted, label) for label, predicted in pairs]) == expected


def test_bias_is_the_share_of_predictions_that_would_have_to_change():
    assert bias([(0, 0), (1, 0), (2, 0), (3, 3)]) == 0.5


# Over time.


@given(
    st.lists(st.booleans(), min_size=1, max_size=300),
    st.lists(st.integers(0, 300), max_size=8),
    st.sampled_from([2, 4, 6, 64]),
)
@settings(deadline=None)
def test_the_curve_is_exact_and_the_same_for_every_cut(right, places, stretches):
    curve = Curve(stretches)
    for part in cut(right, places):
        curve.add(np.array(part))
    width = 1
    while width * stretches < len(right):
        width *= 2
    expected = [right[start : start + width] for start in range(0, len(right), width)]
    assert curve.width == width
    assert curve.ends.tolist() == np.cumsum([len(one) for one in expected]).tolist()
    assert curve.accuracy.tolist() == pytest.approx([100 * mean(one) for one in expected])


def test_a_curve_before_the_first_image_is_empty_and_an_odd_one_is_refused():
    assert Curve().ends.tolist() == Curve().accuracy.tolist() == []
    with pytest.raises(ValueError, match="even number of stretches, not 3"):
        Curve(3)


def test_the_curve_of_a_run_is_over_its_scored_images():
    images = [Image("snow", n % 3 - 1, 0, 0.5, 0.0) for n in range(9)]
    curve = recorded(images[:4], images[4:]).curve
    assert curve.ends.tolist() == [1, 2, 3, 4, 5, 6]
    assert curve.accuracy.tolist() == [100, 0, 100, 0, 100, 0]


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
    names = ("losses", "images", "reliable", "stepped", "forwards", "backwards", "time", "memory")
    taken = (
        ({"ema": 1.0, "src": 4.0}, {"ema": 2, "src": 1}, 2, True, 1, 1, 0.1, 50.0),
        ({"ema": 2.0}, {"ema": 3}, 3, True, 3, 1, 0.3, 70.0),
        ({}, {}, 0, False, 1, 0, 0.1, 60.0),
    )
    recorder = Recorder(C)
    for did in taken:
        recorder.update(batch_of(images, **dict(zip(names, did, strict=True))))
    poisoned = {"losses": {"ema": NAN}, "images": {"ema": 4}, "refused": "NaN", "forwards": 1}
    recorder.update(batch_of(images, **poisoned))
    missed = dict(zip(names, ({"ema": 9.0}, {"ema": 4}, 4, True, 9, 9, 9.0, NAN), strict=True))
    recorder.update(batch_of(images, **missed, missed=True))
    found = recorder.summary()
    expected = {
        "batches": 5,
        "missed": 1,
        "refused": 1,
        "images": 20,
        "step_rate": 2 / 4,
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


def test_domains_that_are_being_shown_may_grow_meanwhile():
    recorder = recorded([Image("snow", 0, 0, 0.5, 0.0)])
    for _ in recorder.domains:
        recorder.update(batch_of([Image("fog", 0, 0, 0.5, 0.0)]))
    assert list(recorder.domains) == ["snow", "fog"]
