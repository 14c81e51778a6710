"""Estimates of accuracy against their definitions, and what they are calibrated on."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.estimators import COLUMNS, Calibration, Measured
from holdfast.engine.last import Answer
from holdfast.engine.reference import Kind, SourceAnswer

(
    CONFIDENCE,
    SECONDED,
    APART_AT_ALL,
    APART_SECONDED,
    APART_FROZEN_SECONDED,
    APART_CONFIDENCE,
    APART_FROZEN_CONFIDENCE,
    DRIFT,
) = range(len(COLUMNS))
APART = slice(APART_SECONDED, DRIFT)
KIND = [0.6, 0.7, 0.4, 0.1, 0.2, 0.15, 0.25, 0.5]
SHARES = st.lists(st.floats(0, 1), min_size=len(COLUMNS), max_size=len(COLUMNS))


def made(seed=0, kinds=4, batches=9, images=300):
    """Batches whose accuracies follow from what is measured of them, but for some noise."""
    rng = np.random.default_rng(seed)
    columns = rng.random((kinds * batches, len(COLUMNS)))
    columns[:, APART] *= columns[:, [APART_AT_ALL]]
    noise = 0.03 * rng.standard_normal((2, len(columns)))
    own = np.clip(0.5 * columns[:, CONFIDENCE] + 0.4 * columns[:, SECONDED] + noise[0], 0, 1)
    gain = 0.6 * (columns[:, APART_SECONDED] - columns[:, APART_FROZEN_SECONDED])
    gain += 0.3 * (columns[:, APART_CONFIDENCE] - columns[:, APART_FROZEN_CONFIDENCE])
    frozen = np.clip(own - gain + noise[1], 0, 1)
    entropies = rng.random(images)
    right = rng.random(images) < 1 - 0.8 * entropies
    of_kind = np.sort(np.arange(images) % kinds)
    return Calibration(
        torch.from_numpy(np.column_stack([own, frozen, columns])),
        torch.arange(kinds).repeat_interleave(batches),
        torch.zeros(kinds * batches, dtype=torch.bool),
        torch.from_numpy(np.stack([1 - entropies, entropies, right.astype(float), of_kind])),
    )


def measured_as(*kinds, shares=(1.0,), evenness=(1.0, 1.0)):
    """A batch of these kinds of image, by `COLUMNS`."""
    rows, parts, even = (torch.tensor(x, dtype=torch.float64) for x in (kinds, shares, evenness))
    none = torch.zeros(0, dtype=torch.float64)
    return Measured(rows, parts, even, none, none)


def plain_fit(inputs, target):
    """Ridge regression: least squares with a row more for each coefficient, which asks it for 0."""
    size = inputs.shape[1]
    inputs = np.vstack([inputs, math.sqrt(0.05) * np.eye(size)])
    return np.linalg.lstsq(inputs, np.concatenate([target, np.zeros(size)]), rcond=None)[0]


def plain_signed_fit(inputs, target):
    """The same where what speaks for the adapter counts for it, and what speaks for the source
    model against it: each coefficient after the other is made the best that it may be."""
    gram = inputs.T @ inputs + 0.05 * np.eye(inputs.shape[1])
    found, aim = np.zeros(inputs.shape[1]), inputs.T @ target
    bounds = [(-np.inf, np.inf), (0, np.inf), (-np.inf, 0), (0, np.inf), (-np.inf, 0)]
    for _ in range(5000):
        for place, (low, high) in enumerate(bounds):
            rest = gram[place] @ found - gram[place, place] * found[place]
            found[place] = np.clip((aim[place] - rest) / gram[place, place], low, high)
    return found


def inputs_of(c):
    """Of the accuracy, and of the gain over the source model."""
    accuracy = [np.ones(len(c)), c[:, CONFIDENCE], c[:, SECONDED]]
    gain = [c[:, APART_AT_ALL], c[:, APART_SECONDED], c[:, APART_FROZEN_SECONDED]]
    gain += [c[:, APART_CONFIDENCE], c[:, APART_FROZEN_CONFIDENCE]]
    return np.stack(accuracy, 1), np.stack(gain, 1)


def plain_estimates(rows, columns):
    """Of these columns by these rows: the accuracy, and the gain over the source model."""
    of_rows, of_columns = inputs_of(rows[:, 2:]), inputs_of(columns)
    accuracy = of_columns[0] @ plain_fit(of_rows[0], rows[:, 0])
    fit = plain_signed_fit(of_rows[1], rows[:, 0] - rows[:, 1])
    return np.clip(accuracy, 0, 1), of_columns[1] @ fit


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), SHARES)
def test_agreement_is_ridge_regression(seed, measured):
    calibration = made(seed)
    seen = np.array([measured])
    surest = calibration.rows[:, 2].max().item()
    seen[0, CONFIDENCE] = min(seen[0, CONFIDENCE], surest)
    seen[0, APART_CONFIDENCE] = min(seen[0, APART_CONFIDENCE], surest * seen[0, APART_AT_ALL])
    accuracy, gain = (each[0] for each in plain_estimates(calibration.rows.numpy(), seen))
    found = calibration.estimate(measured_as(measured))
    assert found.accuracy == pytest.approx(accuracy, abs=1e-9)
    assert found.gain == pytest.approx(gain, abs=1e-9)
    assert found.frozen == pytest.approx(min(max(accuracy - gain, 0), 1), abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 1000), SHARES)
def test_where_nothing_disagrees_neither_model_is_the_better_one(seed, measured):
    measured[APART_AT_ALL : APART.stop] = [0.0] * (APART.stop - APART_AT_ALL)
    found = made(seed).estimate(measured_as(measured))
    assert found.gain == 0 and found.accuracy == found.frozen


def test_it_finds_what_the_accuracies_follow_from():
    calibration, fresh = made(0, batches=40), made(1)
    for row in fresh.rows:
        found = calibration.estimate(measured_as(row[2:].tolist()))
        assert found.accuracy == pytest.approx(float(row[0]), abs=0.15)
        assert found.frozen == pytest.approx(float(row[1]), abs=0.15)


def test_what_speaks_for_one_model_never_counts_for_the_other():
    """Also where a calibration would have it so."""
    calibration = made()
    rows = calibration.rows.clone()
    rows[:, :2] = rows[:, :2].flip(1)  # as if the worse one of the two had always been the better
    turned = Calibration(rows, calibration.groups, calibration.few, calibration.images)
    for each in (calibration, turned):
        _, for_own, for_frozen, own, frozen = each._for_gain.tolist()
        assert min(for_own, own) >= 0 >= max(for_frozen, frozen)
    assert turned._for_gain[1:3].tolist() == [0, 0]
    assert calibration._for_gain[1] > 0.4 and calibration._for_gain[2] < -0.4


def test_difference_of_confidences_is_a_line():
    calibration = made()
    rows = calibration.rows.numpy()
    line = plain_fit(np.column_stack([np.ones(len(rows)), rows[:, 2]]), rows[:, 0])
    for confidence in (0.0, 0.3, 0.9):
        expected = min(max(line[0] + line[1] * confidence, 0), 1)
        images = torch.tensor([confidence - 0.1, confidence + 0.1], dtype=torch.float64)
        assert calibration.by_confidence(images) == pytest.approx(expected, abs=1e-9)


def test_two_kinds_of_image_are_judged_each_by_itself():
    """One on which models agree, one on which they do not: the gain is that of the second alone."""
    calibration = made()
    agreed, apart = [0.9, 0.9, 0, 0, 0, 0, 0, 0.0], [0.4, 0.5, 0.9, 0.2, 0.6, 0.3, 0.7, 0.1]
    each = [calibration.estimate(measured_as(kind)) for kind in (agreed, apart)]
    both = calibration.estimate(measured_as(agreed, apart, shares=(0.75, 0.25)))
    assert each[0].gain == 0 and each[1].gain != 0
    assert both.gain == pytest.approx(0.25 * each[1].gain)
    assert both.accuracy == pytest.approx(0.75 * each[0].accuracy + 0.25 * each[1].accuracy)


def test_a_model_that_is_surer_than_any_in_the_calibration_counts_as_these():
    calibration = made()
    surest = calibration.rows[:, 2].max().item()
    at, above, below = (
        calibration.estimate(measured_as([sure, 0.8, 0.5, 0.1, 0.2, 0.5 * sure, 0.3, 0.3]))
        for sure in (surest, 1.0, surest - 0.1)
    )
    assert surest < 1 and above.accuracy == pytest.approx(at.accuracy)
    assert above.gain == pytest.approx(at.gain)
    assert below.accuracy != at.accuracy and below.gain != at.gain


def test_predictions_in_fewer_classes_than_the_source_models_are_right_less_often():
    calibration, kind = made(), KIND
    even = calibration.estimate(measured_as(kind))
    assert calibration.estimate(measured_as(kind, evenness=(0.91, 1.0))) == even
    for share in (0.8, 0.3, 0.0):
        found = calibration.estimate(measured_as(kind, evenness=(2 * share, 2.0)))
        assert found.accuracy == pytest.approx(even.accuracy * (share / 0.9) ** 3)
        assert found.frozen == even.frozen
        assert found.gain == pytest.approx(found.accuracy - found.frozen)


def test_home_is_what_clean_images_are_like():
    calibration = made()
    clean = calibration.groups == 0
    found = [
        calibration.estimate(measured_as(row.tolist())).accuracy
        for row in calibration.rows[clean, 2:]
    ]
    accuracy, confidence, entropy = calibration.home.tolist()
    assert accuracy == pytest.approx(np.clip(found, 0, 1).mean(), abs=0.02)
    of_clean = calibration.images[:, calibration.images[3] == 0]
    assert 0 < of_clean.shape[1] < calibration.images.shape[1]
    assert confidence == pytest.approx(float(of_clean[0].mean()))
    assert entropy == pytest.approx(float(of_clean[1].mean()))


def test_average_thresholded_confidence():
    """The threshold is where as many of the calibration's images lie below as are right; the share
    below it of other images is their accuracy."""
    calibration = made()
    _, entropies, right, _ = calibration.images.numpy()
    own = calibration.by_threshold(calibration.images[1])
    assert own == pytest.approx(right.mean(), abs=1 / len(right))
    ranked = np.sort(entropies)
    below = round(right.mean() * (len(right) - 1))
    others = torch.rand(500, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = (others.numpy() < ranked[below]).mean()
    assert calibration.by_threshold(others) == pytest.approx(expected, abs=0.01)


def test_the_interval_is_what_other_kinds_of_drift_tell():
    calibration = made(kinds=3)
    rows, groups, errors = calibration.rows.numpy(), calibration.groups.numpy(), []
    for kind in (0, 1, 2):
        accuracy, _ = plain_estimates(rows[groups != kind], rows[groups == kind, 2:])
        errors.extend(accuracy - rows[groups == kind, 0])
    assert calibration.half_widths["agreement"] == pytest.approx(wide(errors), abs=1e-9)


def wide(errors):
    return 1.645 * math.sqrt(np.mean(np.square(errors)))


def test_each_estimator_has_the_interval_of_its_own_errors():
    calibration = made(kinds=3)
    rows, groups = calibration.rows.numpy(), calibration.groups.numpy()
    _, entropies, right, of_kind = calibration.images.numpy()
    by_line, by_threshold = [], []
    for kind in (0, 1, 2):
        own, other = rows[groups == kind], rows[groups != kind]
        line = plain_fit(np.column_stack([np.ones(len(other)), other[:, 2]]), other[:, 0])
        by_line.extend(np.clip(line[0] + line[1] * own[:, 2], 0, 1) - own[:, 0])
        others, of_it = of_kind != kind, np.flatnonzero(of_kind == kind)
        threshold = np.quantile(entropies[others], right[others].mean())
        for part in (of_it[:64], of_it[64:]):
            by_threshold.append((entropies[part] < threshold).mean() - right[part].mean())
    found = calibration.half_widths
    assert found["doc"] == pytest.approx(wide(by_line), abs=1e-9)
    assert found["atc"] == pytest.approx(wide(by_threshold), abs=1e-9)
    assert len(set(found.values())) == 3 and "aetta" not in found  # which is not calibrated


def test_batches_of_a_few_classes_tell_of_the_gain_and_of_nothing_else():
    calibration, kind = made(), KIND
    few = torch.arange(len(calibration.rows)) % 3 == 0
    marked = Calibration(calibration.rows, calibration.groups, few, calibration.images)
    weight = np.where(few, 0.5, 1.0)  # a quarter, in squares
    rows = calibration.rows.numpy()
    fit = plain_signed_fit(
        weight[:, None] * inputs_of(rows[:, 2:])[1], weight * (rows[:, 0] - rows[:, 1])
    )
    expected = float((inputs_of(np.array([kind]))[1] @ fit)[0])
    without = Calibration(
        calibration.rows[~few], calibration.groups[~few], few[~few], calibration.images
    )
    found, alike, other = (
        each.estimate(measured_as(kind)) for each in (marked, calibration, without)
    )
    assert found.gain == pytest.approx(expected, abs=1e-9)
    assert len({found.gain, alike.gain, other.gain}) == 3
    assert found.accuracy == other.accuracy != alike.accuracy
    sure = torch.tensor([0.4], dtype=torch.float64)
    assert marked.by_confidence(sure) == without.by_confidence(sure)
    assert marked.home[1:].tolist() == without.home[1:].tolist()
    assert marked.half_widths["doc"] == without.half_widths["doc"]


def test_a_calibration_is_what_its_tensors_are():
    calibration = made()
    again = Calibration.of(calibration.tensors)
    assert set(calibration.tensors) == {"rows", "groups", "few", "images"}
    assert again.estimate(measured_as(KIND)) == calibration.estimate(measured_as(KIND))


def test_about_nine_of_ten_fresh_batches_lie_in_the_interval():
    calibration, fresh = made(0, batches=40), made(1, batches=200)
    found = [
        calibration.estimate(measured_as(row[2:].tolist())).accuracy - float(row[0])
        for row in fresh.rows
    ]
    assert 0.8 < np.mean(np.abs(found) < calibration.half_widths["agreement"]) < 0.98


def test_what_is_measured_of_a_batch():
    logits = torch.tensor([[2.0, 0, 0], [0, 1, 0], [0, 0, 0]])
    frozen = torch.tensor([[1.0, 0, 0], [3, 1, 0], [0, 0, 1]])
    opinion = torch.tensor([[0.5, 1, 0], [1, 2, 0], [3, 0, 0]])
    kinds = Kind(torch.tensor([0, 2]), 0.25), Kind(torch.tensor([1]), 0.75)
    found = Measured.of(Answer(logits, logits), SourceAnswer(frozen, opinion, kinds))
    own, other, third = (
        np.exp(each) / np.exp(each).sum(1, keepdims=True)
        for each in (logits.double().numpy(), frozen.double().numpy(), opinion.double().numpy())
    )
    entropies = -(own * np.log(own)).sum(1)
    # Images 1 and 2 are taken for class 1 and 0, by the source model for 0 and 2.
    first = [own.max(1)[[0, 2]].mean(), (third[0, 0] + third[2, 0]) / 2, 1 / 2]
    first += [third[2, 0] / 2, third[2, 2] / 2, own[2].max() / 2, other[2].max() / 2, 0.25]
    second = [own[1, 1], third[1, 1], 1.0, third[1, 1], third[1, 0], own[1, 1], other[1, 0], 0.75]
    assert found.kinds.flatten().tolist() == pytest.approx(first + second)
    assert found.shares.tolist() == pytest.approx([2 / 3, 1 / 3])
    assert found.drift == pytest.approx(0.25 * 2 / 3 + 0.75 / 3)
    mean = np.stack([own.mean(0), other.mean(0)])
    assert found.evenness.tolist() == pytest.approx((-mean * np.log(mean)).sum(1).tolist())
    assert found.confidences.tolist() == pytest.approx(own.max(1).tolist())
    assert found.entropies.tolist() == pytest.approx(entropies.tolist())
