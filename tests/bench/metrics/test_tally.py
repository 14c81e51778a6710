"""Each figure against a plain computation that keeps every image."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shown import BORDERS, DOMAINS, IMAGES, NAN, STREAMS, C, Image, cut, is_close, mean, recorded
from torchmetrics.functional.classification import multiclass_calibration_error

from holdfast.bench.metrics.recorder import Recorder


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
