"""What an adapter tells of itself without labels, and the options of that."""

from dataclasses import asdict, replace

import pytest
import torch
from drifting import adapt_watched, calibrated, images_of, labelled, staged_home_net
from running import quietly
from toys import stream, toy_net

import holdfast
from holdfast import Health, HealthOptions
from holdfast.engine.health import NOT_YET, UNKNOWN


def test_before_the_first_batch_nothing_is_known(home):
    assert holdfast.adapt(toy_net(), "tent").health == Health()
    health = adapt_watched(home).health
    known = {name for name, value in asdict(health).items() if value != getattr(Health(), name)}
    assert known == {"advice", "estimator", "source_entropy", "source_confidence"}
    assert health.advice == NOT_YET


def test_without_a_calibrated_source_it_tells_what_it_can():
    net = toy_net()
    frozen, tent = (holdfast.adapt(net, spec) for spec in ("frozen", "tent(lr=0.01)"))
    batches = stream(("all", "some", "none"), last=5)
    logits = [quietly(each, batches) for each in (frozen, tent)]
    for adapter, outputs in zip((frozen, tent), logits, strict=True):
        health, weights, totals = adapter.health, 0.0, [0.0, 0.0]
        for each in outputs:  # a batch of n images counts n / (n + 64)
            p, share = each.double().softmax(1), len(each) / (len(each) + 64)
            fresh = p.amax(1).mean().item(), -(p * p.log()).sum(1).mean().item()
            weights = weights * (1 - share) + share
            totals = [a * (1 - share) + b * share for a, b in zip(totals, fresh, strict=True)]
        assert health.confidence == pytest.approx(totals[0] / weights, abs=1e-6)
        assert health.entropy == pytest.approx(totals[1] / weights, abs=1e-6)
        for name in ("drift", "accuracy", "interval", "frozen_accuracy", "estimator", "risk_bound"):
            assert getattr(health, name) is None
    assert (frozen.health.state, tent.health.state) == ("stable", "adapting")
    # Nothing says that it helps, nor that all is well.
    assert frozen.health.advice == tent.health.advice == UNKNOWN
    assert "drifted=" in str(tent.health) and "None" not in str(tent.health)
    assert tent.health.step_rate == 1 and frozen.health.step_rate is None


def test_drift_is_none_on_source_images_and_high_on_others(home):
    for kind, low, high in (("clean", 0, 0.02), ("noise", 0.2, 1), ("dark", 0.7, 1)):
        for spec in ("frozen", "tent"):
            adapter = adapt_watched(home, spec)
            quietly(adapter, images_of(kind, 8))
            assert low <= adapter.health.drift <= high


def test_estimates_are_nearly_always_within_their_interval_of_the_truth(home):
    kinds = ("clean", "noise", "bright", "dark")
    found = {kind: estimates_of(home, kind) for kind in kinds}
    within = [low <= accuracy <= high for accuracy, _, low, high in found.values()]
    assert sum(within) >= 3  # it is one of 90 %
    # Drift costs. Which costs more this net is too small to tell by its answers: see
    # test_estimates_on_images.py.
    for kind in kinds[1:]:
        assert all(found["clean"][n] > found[kind][n] for n in (0, 1))


def estimates_of(home, kind):
    """Over some batches: true accuracy, the estimated one, and its interval."""
    adapter, rows = adapt_watched(home), []
    for seed in range(10):
        images, labels = labelled(kind, seed=4000 + seed)
        answers = quietly(adapter, [images])[0], home[0](images)
        health = adapter.health
        low, high = health.interval
        assert low <= health.accuracy <= high
        true = [(each.argmax(1) == labels).double().mean().item() for each in answers]
        rows.append([*true, health.accuracy, health.frozen_accuracy, low, high])
    accuracy, frozen, estimated, estimated_frozen, low, high = torch.tensor(rows).mean(0).tolist()
    assert estimated_frozen == pytest.approx(frozen, abs=0.3)
    if kind != "clean":  # which of the two is the better one
        assert estimated > estimated_frozen and accuracy > frozen
    return accuracy, estimated, low, high


def test_printed_it_is_a_line_that_begins_with_what_counts(home):
    adapter = adapt_watched(home)
    quietly(adapter, images_of("noise", 4))
    health = adapter.health
    accuracy, (low, high) = round(100 * health.accuracy), health.interval
    assert str(health) == (
        f"adapting, estimated accuracy {accuracy}% ({low:.0%} to {high:.0%}), the source model's "
        f"{health.frozen_accuracy:.0%}, drift {health.drift:.2f}. {health.advice}"
    )
    ringing = replace(health, alarm=True, fallback=True)
    assert ", an alarm rings, the source model answers. " in str(ringing)


def test_what_the_source_model_answers_is_worth_the_same_twice(home):
    adapter = adapt_watched(home, "frozen")
    quietly(adapter, images_of("noise", 3))
    assert adapter.health.accuracy == adapter.health.frozen_accuracy


def test_the_sources_confidence_is_that_on_clean_images(home):
    health = adapt_watched(home, "frozen").health
    clean = torch.cat(images_of("clean", 8))
    p = home[0](clean).double().softmax(1)
    assert health.source_confidence == pytest.approx(p.amax(1).mean().item(), abs=0.03)
    assert health.source_entropy == pytest.approx(-(p * p.log()).sum(1).mean().item(), abs=0.06)


@pytest.mark.parametrize("estimator", ["agreement", "doc", "atc"])
def test_an_interval_is_as_wide_as_its_estimators_errors(home, estimator):
    adapter = adapt_watched(home, health=HealthOptions(estimator=estimator, every=1))
    quietly(adapter, images_of("noise", 3))
    health = adapter.health
    width = adapter._state.monitor.calibration.half_widths[estimator]
    expected = max(health.accuracy - width, 0), min(health.accuracy + width, 1)
    assert health.interval == pytest.approx(expected)


def test_what_is_not_calibrated_has_no_interval():
    net = staged_home_net()
    adapter = adapt_watched(
        (net, calibrated(net)), health=HealthOptions(estimator="aetta", every=1)
    )
    quietly(adapter, images_of("noise", 3))
    assert adapter.health.accuracy is not None and adapter.health.interval is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"estimator": "guess"}, "agreement, doc, atc, aetta, not 'guess'"),
        ({"every": 0}, "at least 1, not 0"),
        ({"every": 2.5}, "at least 1, not 2.5"),
        ({"level": 0}, "between 0 and 1"),
        ({"level": 1.0}, "between 0 and 1"),
        ({"level": "low"}, "between 0 and 1"),
    ],
)
def test_options_that_make_no_sense_are_errors(options, says):
    with pytest.raises(ValueError, match=says):
        HealthOptions(**options)


def test_options_have_to_be_options():
    with pytest.raises(ValueError, match=r"health is a holdfast.HealthOptions, not dict"):
        holdfast.adapt(toy_net(), "tent", health={"every": 2})
