"""What an adapter tells of itself without labels: states, estimates, and how they are kept."""

import math
import warnings
from dataclasses import asdict

import pytest
import torch
from drifting import calibrated, home_net, images_of, labelled, staged_home_net
from toys import CLASSES, stream, toy_net

import holdfast
from holdfast import Health, HealthOptions
from holdfast.engine.health import ADVICE, DRIFT_HURTS

EVERY_BATCH = HealthOptions(every=1)
OF_ONE_CLASS = [labelled(seed=3000 + i, label=i % CLASSES)[0] for i in range(40)]


@pytest.fixture(scope="module")
def home():
    net = home_net()
    return net, calibrated(net)


def adapt(home, spec="bn", **options):
    options = {"health": EVERY_BATCH} | options
    return holdfast.adapt(home[0], spec, source=home[1], **options)


def run(adapter, batches):
    """Logits, whatever there is to warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [adapter(images) for images in batches]


def warnings_of(adapter, batches):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for images in batches:
            adapter(images)
    return [str(one.message) for one in caught]


def states(adapter, batches):
    return [(run(adapter, [images]), adapter.health.state)[1] for images in batches]


# What is known when.


def test_before_the_first_batch_nothing_is_known(home):
    assert holdfast.adapt(toy_net(), "tent").health == Health()
    health = adapt(home).health
    known = {name for name, value in asdict(health).items() if value != getattr(Health(), name)}
    assert known == {"estimator", "source_entropy", "source_confidence"}


def test_without_a_calibrated_source_it_tells_what_it_can():
    net = toy_net()
    frozen, tent = (holdfast.adapt(net, spec) for spec in ("frozen", "tent(lr=0.01)"))
    batches = stream(("all", "some", "none"), last=5)
    logits = [run(each, batches) for each in (frozen, tent)]
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
    assert tent.health.step_rate == 1 and frozen.health.step_rate is None


def test_drift_is_none_on_source_images_and_high_on_others(home):
    for kind, low, high in (("clean", 0, 0.02), ("noise", 0.2, 1), ("dark", 0.7, 1)):
        for spec in ("frozen", "tent"):
            adapter = adapt(home, spec)
            run(adapter, images_of(kind, 8))
            assert low <= adapter.health.drift <= high


def test_estimates_are_nearly_always_within_their_interval_of_the_truth(home):
    kinds = ("clean", "noise", "bright", "dark")
    assert sum(is_within(home, kind) for kind in kinds) >= 3  # it is one of 90 %


def is_within(home, kind):
    adapter, right, frozen_right = adapt(home), [], []
    for seed in range(10):
        images, labels = labelled(kind, seed=4000 + seed)
        right.append(run(adapter, [images])[0].argmax(1) == labels)
        frozen_right.append(home[0](images).argmax(1) == labels)
    health = adapter.health
    accuracy, frozen = (torch.cat(each).double().mean().item() for each in (right, frozen_right))
    low, high = health.interval
    assert low <= health.accuracy <= high
    assert health.frozen_accuracy == pytest.approx(frozen, abs=0.3)
    if kind == "clean":
        assert health.accuracy == pytest.approx(accuracy, abs=0.1)
    else:  # which of the two is the better one
        assert health.accuracy > health.frozen_accuracy and accuracy > frozen
    return low <= accuracy <= high


def test_what_the_source_model_answers_is_worth_the_same_twice(home):
    adapter = adapt(home, "frozen")
    run(adapter, images_of("noise", 3))
    assert adapter.health.accuracy == adapter.health.frozen_accuracy


def test_the_sources_confidence_is_that_on_clean_images(home):
    health = adapt(home, "frozen").health
    clean = torch.cat(images_of("clean", 8))
    p = home[0](clean).double().softmax(1)
    assert health.source_confidence == pytest.approx(p.amax(1).mean().item(), abs=0.03)
    assert health.source_entropy == pytest.approx(-(p * p.log()).sum(1).mean().item(), abs=0.06)


# States.


def test_stable_and_adapting_last_as_long_as_they_hold(home):
    adapter = adapt(home)
    found = states(adapter, images_of("clean", 6))
    assert set(found) == {"stable"} and adapter.health.advice == ADVICE["stable"]
    found = states(adapter, images_of("noise", 10))
    assert found[-1] == "adapting" and found.count("stable") <= 2
    found = states(adapter, images_of("clean", 10))
    assert found[-1] == "stable" and found.count("adapting") <= 4


def test_degrading_begins_when_adapting_harms_and_ends_when_it_no_longer_does(home):
    """Batch statistics of one class take away what tells classes apart."""
    adapter = adapt(home)
    with pytest.warns(UserWarning, match=r"bn: adapting seems to do harm.*adapter\.health") as told:
        found = [(adapter(images), adapter.health.state)[1] for images in OF_ONE_CLASS]
    assert sum("do harm" in str(one.message) for one in told) == 1
    begins = found.index("degrading")
    assert begins < 30 and set(found[begins:]) == {"degrading"}
    health = adapter.health
    assert (health.alarm, health.alarms, health.advice) == (True, 1, ADVICE["degrading"])
    assert health.accuracy < health.frozen_accuracy
    found = states(adapter, images_of("clean", 60))
    ends = found.index("stable")
    assert set(found[ends:]) == {"stable"}
    assert not adapter.health.alarm and adapter.health.alarms == 1


def test_the_source_model_itself_does_not_degrade(home):
    assert set(states(adapt(home, "frozen"), OF_ONE_CLASS)) == {"stable"}


def test_drift_that_costs_accuracy_rings_though_adapting_is_not_to_blame(home):
    adapter = adapt(home, "frozen")
    (told,) = warnings_of(adapter, images_of("dark", 40))
    assert "less accurate here than on source images. adapter.health says more" in told
    assert "no guard acts on it: label some" in told and "'fallback'" not in told
    health = adapter.health
    assert (health.state, health.alarm, health.advice) == ("adapting", True, DRIFT_HURTS)
    clean = adapt(home, "frozen")
    run(clean, images_of("clean", 40))
    assert clean.health.risk_bound is None and not clean.health.alarm
    assert 0.05 <= health.risk_bound < 0.85  # above it the source's own accuracy lies


class Tipping(torch.nn.Module):
    """Answers with one class only, once its scale has been driven up."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, images):
        tipped = (self.net.norm1.weight.mean() > 1.5).float()
        return self.net(images) + tipped * 1000 * torch.eye(CLASSES)[0]


def shift(adapter, by):
    with torch.no_grad():
        adapter.model.net.norm1.weight.add_(by)


@pytest.mark.parametrize("watched", [False, True], ids=["alone", "calibrated"])
def test_collapsed_lasts_as_long_as_it_holds(watched):
    net = Tipping(home_net())
    source = calibrated(net) if watched else None
    adapter = holdfast.adapt(net, "tent(lr=0)", source=source, health=EVERY_BATCH)
    assert "collapsed" not in states(adapter, images_of("clean", 20))
    shift(adapter, 1)
    found = states(adapter, images_of("clean", 140))
    begins = found.index("collapsed")
    assert set(found[begins:]) == {"collapsed"} and begins < 120
    health = adapter.health
    assert health.alarm and health.advice == ADVICE["collapsed"] and health.spread < 0.05
    assert health.alarms >= 1
    shift(adapter, -1)
    found = states(adapter, images_of("clean", 120))
    assert "collapsed" not in found[-20:]
    assert adapter.health.spread > 0.2


def test_a_stream_of_one_class_is_no_collapse_where_the_source_model_agrees(home):
    adapter = adapt(home, "tent(lr=0)+steady")
    found = states(adapter, images_of("clean", 140, label=3))
    assert adapter.health.spread < 0.05 and "collapsed" not in found
    alone = holdfast.adapt(home[0], "tent(lr=0)+steady", source=uncalibrated(home))
    assert "collapsed" in states(alone, images_of("clean", 140, label=3))


def test_a_collapse_that_shows_only_once_the_stream_is_mixed_is_told_of(home):
    """As long as the stream has one class, so may have the answers; then they may not."""
    net = Tipping(home_net())
    adapter = holdfast.adapt(net, "tent(lr=0)", source=calibrated(net), health=EVERY_BATCH)
    shift(adapter, 1)
    of_one = images_of("clean", 140, label=0)
    assert "collapsed" not in states(adapter, of_one)
    (told,) = warnings_of(adapter, images_of("clean", 140))
    assert "has collapsed" in told and adapter.health.state == "collapsed"


def test_a_source_model_that_fell_into_other_classes_is_no_excuse(home):
    """Far from home it may answer with one class too."""
    net = Tipping(home_net())
    adapter = holdfast.adapt(net, "tent(lr=0)", source=calibrated(net), health=EVERY_BATCH)
    shift(adapter, 1)
    source_model = adapter._state.monitor.reference.network.model
    with source_model.register_forward_hook(lambda *of: of[2] + 1000 * torch.eye(CLASSES)[1]):
        assert "collapsed" in states(adapter, images_of("clean", 140))
    adapter.reset()
    shift(adapter, 1)
    with source_model.register_forward_hook(lambda *of: of[2] + 1000 * torch.eye(CLASSES)[0]):
        assert "collapsed" not in states(adapter, images_of("clean", 140))


@pytest.mark.parametrize("estimator", ["agreement", "doc", "atc"])
def test_an_interval_is_as_wide_as_its_estimators_errors(home, estimator):
    adapter = adapt(home, health=HealthOptions(estimator=estimator, every=1))
    run(adapter, images_of("noise", 3))
    health = adapter.health
    width = adapter._state.monitor.calibration.half_widths[estimator]
    expected = max(health.accuracy - width, 0), min(health.accuracy + width, 1)
    assert health.interval == pytest.approx(expected)


def test_what_is_not_calibrated_has_no_interval():
    net = staged_home_net()
    adapter = adapt((net, calibrated(net)), health=HealthOptions(estimator="aetta", every=1))
    run(adapter, images_of("noise", 3))
    assert adapter.health.accuracy is not None and adapter.health.interval is None


def uncalibrated(home):
    """The same source without what health takes of it."""
    source = holdfast.Source.from_loader(
        home[0], [labelled(count=56, seed=200 + n) for n in range(8)]
    )
    return source


# Distance.


def test_distance_is_that_of_what_trains(home):
    adapter = adapt(home, "tent(lr=0.05)")
    assert adapter.health.distance == 0
    run(adapter, images_of("noise", 4))
    own = dict(home[0].named_parameters())
    moved = start = 0.0
    for name, weight in adapter.model.named_parameters():
        if name.startswith("norm"):
            moved += (weight - own[name]).double().square().sum().item()
            start += own[name].double().square().sum().item()
    assert adapter.health.distance == pytest.approx(math.sqrt(moved / start), rel=1e-5)
    assert adapter.health.distance > 0.001
    adapter.reset()
    assert adapter.health.distance == 0
    assert adapt(home, "bn").health.distance == 0


# Small batches, and how often.


@pytest.mark.parametrize("size", [1, 5, 32, 50])
@pytest.mark.parametrize("estimator", ["agreement", "doc", "atc"])
def test_an_estimate_is_made_over_32_images_at_least(home, size, estimator):
    health = HealthOptions(every=1, estimator=estimator)
    adapter = adapt(home, "bn+steady", health=health)
    images = torch.cat(images_of("noise", 3))[: 2 * 32 - 1]
    seen, changes, before = 0, [], None
    for batch in images.split(size):
        run(adapter, [batch])
        seen += len(batch)
        if adapter.health.accuracy != before:
            changes.append(seen)
            before = adapter.health.accuracy
    first = -(-32 // size) * size
    assert changes == [min(first, 63)]


@pytest.mark.parametrize("estimator", ["agreement", "doc", "atc"])
def test_an_estimate_of_single_images_is_one_of_all_of_them(home, estimator):
    """Of a batch of one, an estimate alone would be 0 or 1, or nearly so."""
    health = HealthOptions(every=1, estimator=estimator)
    single, batched = (adapt(home, "frozen", health=health) for _ in range(2))
    (images,) = images_of("clean", 1)
    run(single, images.split(1))
    run(batched, [images])
    assert single.health.accuracy == pytest.approx(batched.health.accuracy, abs=0.05)


@pytest.mark.parametrize("every", [1, 3, None])
def test_it_measures_every_so_many_batches(home, every):
    adapter = adapt(home, health=HealthOptions(every=every))
    count = []
    seen = adapter._state.monitor.reference.network.model.register_forward_hook(
        lambda *_: count.append(1)
    )
    with seen:
        run(adapter, images_of("clean", 17))
    assert len(count) == len(range(0, 17, every or 8))


# Options.


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


@pytest.mark.parametrize("level", [0.0001, 0.5])
def test_a_lower_level_rings_later(home, level):
    adapter = adapt(home, health=HealthOptions(every=1, level=level))
    found = states(adapter, OF_ONE_CLASS)
    begins = found.index("degrading")
    usual = states(adapt(home), OF_ONE_CLASS).index("degrading")
    assert begins > usual if level < 0.05 else begins < usual
