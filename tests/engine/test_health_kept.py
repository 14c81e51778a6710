"""Health as state: saved, loaded, reset, and left as it was where something goes wrong."""

import math
from pathlib import Path

import pytest
import torch
from drifting import adapt_watched, calibrated, images_of, labelled, staged_home_net
from running import quietly
from safetensors.torch import load_file
from toys import ToyNet, assert_same_state, state_of, stream

import holdfast
from holdfast import HealthOptions
from holdfast.data.holdout import drifted
from holdfast.engine.health import ESTIMATORS


@pytest.fixture(scope="module")
def staged():
    net = staged_home_net()
    return net, calibrated(net)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("every", [1, 3])
def test_saved_and_loaded_it_goes_on_as_if_never_stopped(staged, tmp_path, estimator, every):
    """The file alone serves: the source that it was calibrated with is not there."""
    options = HealthOptions(estimator=estimator, every=every)
    adapter = adapt_watched(staged, "tent(lr=0.01)", health=options)
    quietly(adapter, images_of("noise", 5, count=20))
    adapter.save(tmp_path / "state")
    loaded = holdfast.load(tmp_path / "state", staged[0])
    assert loaded.health == adapter.health and loaded.health.accuracy is not None
    for images in images_of("dark", 8, count=20, seed=50):
        assert torch.equal(quietly(loaded, [images])[0], quietly(adapter, [images])[0])
        assert loaded.health == adapter.health
    assert_same_state(state_of(loaded), state_of(adapter))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_reset_is_fresh(staged, estimator):
    adapter = adapt_watched(staged, "tent", health=HealthOptions(estimator=estimator, every=1))
    fresh, state = adapter.health, state_of(adapter)
    quietly(adapter, images_of("dark", 20))
    once = adapter.health
    adapter.reset()
    assert adapter.health == fresh != once
    assert_same_state(state_of(adapter), state)
    quietly(adapter, images_of("dark", 20))
    assert adapter.health == once


@pytest.mark.parametrize(
    "spec", ["tent", "cotta(views=2,restore=0.1)", "rotta(capacity=12,every=20)"]
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_to_be_watched_changes_no_answer(staged, spec, estimator):
    """Also where the method draws random numbers, and the estimator too."""
    watched = adapt_watched(staged, spec, health=HealthOptions(estimator=estimator, every=1))
    alone = holdfast.adapt(staged[0], spec)
    batches = images_of("noise", 6)
    for one, other in zip(quietly(watched, batches), quietly(alone, batches), strict=True):
        assert torch.equal(one, other)
    assert watched.health.accuracy is not None


def test_predict_tells_health_nothing(home):
    adapter = adapt_watched(home, "tent")
    quietly(adapter, images_of("noise", 2))
    before = adapter.health
    adapter.predict(images_of("dark")[0])
    assert adapter.health == before


FOLDER = Path(__file__).parents[1] / "fixtures" / "0.1.0"


@pytest.mark.parametrize("name", ["bn", "eata-debias", "rotta", "tsd-rollback"])
def test_a_state_of_version_0_1_has_health(name):
    net = ToyNet()
    net.load_state_dict(load_file(FOLDER / "net.safetensors"))
    adapter = holdfast.load(FOLDER / f"{name}.safetensors", net.eval())
    assert adapter.health.confidence is None and adapter.health.accuracy is None
    assert adapter.options.guard == ("rollback" if "rollback" in name else "alarm")
    quietly(adapter, stream(("all", "some")))
    assert 0 < adapter.health.confidence < 1


# What goes wrong.


def of_the_source_model(adapter):
    return adapter._state.monitor.reference.network.model


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_source_model_that_overflows_leaves_no_trace(home, value):
    """As in float16: what cannot be measured tells nothing, and later batches do."""
    adapter, untroubled = adapt_watched(home, "tent"), adapt_watched(home, "tent")
    first, second, *later = images_of("noise", 6)
    for each in (adapter, untroubled):
        quietly(each, [first])
    overflow = of_the_source_model(adapter).fc.register_forward_hook(
        lambda layer, inputs, output: output * value
    )
    with overflow:
        quietly(adapter, [second])
    quietly(untroubled, [second])
    quietly(adapter, later)
    quietly(untroubled, later)
    health = adapter.health
    assert all(math.isfinite(x) for x in (health.accuracy, health.frozen_accuracy, health.drift))
    assert health.accuracy == pytest.approx(untroubled.health.accuracy, abs=0.1)
    assert all(bool(each.isfinite().all()) for each in state_of(adapter).values())


def test_an_error_of_the_source_model_changes_nothing(home):
    """Such as one of memory: the batch may be tried again."""
    adapter, untroubled = adapt_watched(home, "tent"), adapt_watched(home, "tent")
    first, *later = images_of("noise", 4)
    quietly(adapter, [first])
    before, last = state_of(adapter), adapter.last.batch
    fails = of_the_source_model(adapter).conv2.register_forward_pre_hook(lambda *_: 1 / 0)
    with fails, pytest.raises(ZeroDivisionError):
        adapter(images_of("dark")[0])  # of which nothing may stay, in the source model either
    assert_same_state(state_of(adapter), before)
    assert adapter.last.batch == last and "division" in adapter.last.refused
    quietly(adapter, later)
    quietly(untroubled, [first, *later])
    assert_same_state(state_of(adapter), state_of(untroubled))


# The source, by images under the corruptions that no test shows.


def large(images):
    """Large enough to be corrupted."""
    return torch.nn.functional.interpolate(images, scale_factor=2)


def test_a_source_that_was_saved_serves_without_its_loaders(home, tmp_path):
    net = torch.nn.Sequential(torch.nn.AvgPool2d(2), home[0])
    loader = [(large(images), y) for images, y in (labelled(seed=600 + n) for n in range(6))]
    made = holdfast.Source.from_loader(net, loader, drifted=drifted(loader, images=64))
    batches = [large(images) for images in images_of("tint", 4)]
    adapters = [holdfast.adapt(net, "tent", source=made, health=HealthOptions(every=1))]
    made.save(tmp_path / "source")
    known = holdfast.Source.load(tmp_path / "source")
    adapters.append(holdfast.adapt(net, "tent", source=known, health=HealthOptions(every=1)))
    for images in batches:
        one, other = (quietly(adapter, [images])[0] for adapter in adapters)
        assert torch.equal(one, other)
        assert adapters[0].health == adapters[1].health
    assert adapters[1].health.accuracy is not None
    groups = known.tensors["health/2/ByBatch-Student/groups"]
    assert sorted(set(groups.tolist())) == [0, 1, 2, 3, 4]  # clean, and four kinds
    # Answers of another kind are worth what nobody has found out.
    with pytest.warns(UserWarning, match="of another kind"):
        assert holdfast.adapt(net, "frozen", source=known).health.estimator is None
    again = holdfast.Source.load(tmp_path / "source", loader, drifted=drifted(loader, images=64))
    assert holdfast.adapt(net, "frozen", source=again).health.estimator == "agreement"
