"""What is measured of an adapter without labels, and when the alarm rings."""

import math

import pytest
import torch
from drifting import adapt_watched, calibrated, home_net, images_of, labelled
from running import quietly, warnings_of
from toys import CLASSES

import holdfast
from holdfast import HealthOptions
from holdfast.engine.health import ADVICE, BOTH_HURT, COSTS, DRIFT_HURTS, HARMS, IN_FALLBACK

EVERY_BATCH = HealthOptions(every=1)

OF_ONE_CLASS = [labelled(seed=3000 + i, label=i % CLASSES)[0] for i in range(40)]


def states(adapter, batches):
    return [(quietly(adapter, [images]), adapter.health.state)[1] for images in batches]


def test_stable_and_adapting_last_as_long_as_they_hold(home):
    adapter = adapt_watched(home)
    found = states(adapter, images_of("clean", 6))
    assert set(found) == {"stable"} and adapter.health.advice == ADVICE["stable"]
    found = states(adapter, images_of("noise", 10))
    assert found[-1] == "adapting" and found.count("stable") <= 2
    found = states(adapter, images_of("clean", 10))
    assert found[-1] == "stable" and found.count("adapting") <= 4


def test_degrading_begins_when_adapting_harms_and_ends_when_it_no_longer_does(home):
    """Batch statistics of one class take away what tells classes apart."""
    adapter = adapt_watched(home)
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
    assert set(states(adapt_watched(home, "frozen"), OF_ONE_CLASS)) == {"stable"}


def test_drift_that_costs_accuracy_rings_though_adapting_is_not_to_blame(home):
    adapter = adapt_watched(home, "frozen")
    (told,) = warnings_of(adapter, images_of("dark", 40))
    assert "less accurate here than on source images (batch 4). adapter.health says more" in told
    assert "no guard acts on it: label some" in told and "'fallback'" not in told
    health = adapter.health
    assert (health.state, health.alarm, health.advice) == ("adapting", True, DRIFT_HURTS)
    clean = adapt_watched(home, "frozen")
    quietly(clean, images_of("clean", 40))
    assert clean.health.risk_bound is None and not clean.health.alarm
    assert 0.05 <= health.risk_bound < 0.85  # above it the source's own accuracy lies


def test_in_fallback_it_rings_too_and_goes_by_what_is_answered(home):
    """By the source model, whose accuracy may suffer while the adapter's is tried beside it."""
    adapter = adapt_watched(home, guard="fallback")
    quietly(adapter, OF_ONE_CLASS[:6])
    assert adapter.health.fallback and adapter.health.alarms == 1
    told = warnings_of(adapter, images_of("tint", 7))
    assert [COSTS in text for text in told] == [True]
    health = adapter.health
    assert health.fallback and health.alarms == 2 and health.advice == DRIFT_HURTS
    # On images of its own the source model loses nothing, however bad what is tried is.
    adapter.reset()
    for _ in range(4):
        assert not any(COSTS in text for text in warnings_of(adapter, OF_ONE_CLASS))


def test_in_fallback_confidence_is_that_of_what_is_answered(home):
    adapter = adapt_watched(home, guard="fallback")
    adapter._state.fallback.start()
    (images,) = images_of("dark")
    (answered,) = quietly(adapter, [images])
    tried = holdfast.adapt(home[0], "bn")(images)
    own, other = (logits.softmax(1).amax(1).mean().item() for logits in (answered, tried))
    assert abs(own - other) > 0.01
    assert adapter.health.confidence == pytest.approx(own, abs=1e-5)


def test_what_the_source_model_loses_is_by_its_own_accuracy_at_home(home):
    """Which that of batch statistics, in small batches, is far below."""
    adapter = adapt_watched(home, guard="fallback")
    monitor, lost = adapter._state.monitor, []
    calibration = monitor.calibration
    clean = calibration.rows[(calibration.groups == 0) & ~calibration.few]
    own, frozen = clean[:, 0].mean(), clean[:, 1].mean()
    assert frozen - own > 0.1
    assert calibration.frozen_home > calibration.home[0] + 0.05
    monitor.risk.register_forward_pre_hook(lambda evidence, given: lost.append(given[0]))
    adapter._state.fallback.start()
    quietly(adapter, images_of("dark"))
    _, estimated, drift, _ = monitor.estimates.tolist()
    assert lost == pytest.approx([drift * (calibration.frozen_home - estimated)])


def test_whatever_begins_to_ring_in_fallback_is_told_and_counted(home):
    adapter = adapt_watched(home, guard="fallback")
    quietly(adapter, OF_ONE_CLASS[:6] + images_of("clean", 6))
    assert adapter.health.fallback and adapter.health.alarms == 1
    # It falls silent a batch later, and begins anew.
    told = warnings_of(adapter, OF_ONE_CLASS[8:16])
    assert len(told) == 1 and HARMS in told[0]
    assert told[0].endswith("The source model answers while this lasts.")
    health = adapter.health
    assert health.fallback and health.alarm and health.alarms == 2
    assert (health.state, health.advice) == ("degrading", IN_FALLBACK)


def test_what_drift_costs_is_told_beside_the_harm_that_adapting_does(home):
    adapter = adapt_watched(home)
    quietly(adapter, OF_ONE_CLASS)
    adapter._state.monitor.risk.rings.fill_(True)
    assert adapter.health.advice == f"{ADVICE['degrading']} {BOTH_HURT}"


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
    adapter = adapt_watched(home, "tent(lr=0)+steady")
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


def uncalibrated(home):
    """The same source without what health takes of it."""
    source = holdfast.Source.from_loader(
        home[0], [labelled(count=56, seed=200 + n) for n in range(8)]
    )
    return source


def test_distance_is_that_of_what_trains(home):
    adapter = adapt_watched(home, "tent(lr=0.05)")
    assert adapter.health.distance == 0
    quietly(adapter, images_of("noise", 4))
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
    assert adapt_watched(home, "bn").health.distance == 0


@pytest.mark.parametrize("size", [1, 5, 32, 50])
@pytest.mark.parametrize("estimator", ["agreement", "doc", "atc"])
def test_an_estimate_is_made_over_32_images_at_least(home, size, estimator):
    health = HealthOptions(every=1, estimator=estimator)
    adapter = adapt_watched(home, "bn+steady", health=health)
    images = torch.cat(images_of("noise", 3))[: 2 * 32 - 1]
    seen, changes, before = 0, [], None
    for batch in images.split(size):
        quietly(adapter, [batch])
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
    single, batched = (adapt_watched(home, "frozen", health=health) for _ in range(2))
    (images,) = images_of("clean", 1)
    quietly(single, images.split(1))
    quietly(batched, [images])
    assert single.health.accuracy == pytest.approx(batched.health.accuracy, abs=0.05)


@pytest.mark.parametrize("every", [1, 3, None])
def test_it_measures_every_so_many_batches(home, every):
    adapter = adapt_watched(home, health=HealthOptions(every=every))
    count = []
    seen = adapter._state.monitor.reference.network.model.register_forward_hook(
        lambda *_: count.append(1)
    )
    with seen:
        quietly(adapter, images_of("clean", 17))
    assert len(count) == len(range(0, 17, every or 8))


@pytest.mark.parametrize("level", [0.0001, 0.5])
def test_a_lower_level_rings_later(home, level):
    adapter = adapt_watched(home, health=HealthOptions(every=1, level=level))
    found = states(adapter, OF_ONE_CLASS)
    begins = found.index("degrading")
    usual = states(adapt_watched(home), OF_ONE_CLASS).index("degrading")
    assert begins > usual if level < 0.05 else begins < usual
