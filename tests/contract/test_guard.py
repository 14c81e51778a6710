"""The guard: it changes nothing where nothing rings, and does what it says where something does."""

import copy

import pytest
import torch
from compositions import COMPOSITIONS, warms_up
from drifting import calibrated, home_net, images_of, labelled
from running import assert_equal, law_of, load, quietly, run, warnings_of
from toys import CLASSES, assert_same_state, state_of, toy_net

import holdfast
from holdfast import HealthOptions
from holdfast.engine.adapter import KIND
from holdfast.engine.health import GUARDS
from holdfast.util import files

# Those that batches of one class do harm to.
HARMED = ["bn", "tent", "eata(redundancy=2)+debias", "cotta(views=2)", "tent+toy-lights"]
OF_ONE_CLASS = [labelled(seed=3000 + i, label=i % CLASSES)[0] for i in range(60)]


@pytest.fixture(scope="module")
def net():
    return home_net()


@pytest.fixture(scope="module")
def source(net):
    return calibrated(net)


@pytest.fixture
def adapt(net, source):
    def make(spec, **options):
        options = {"health": HealthOptions(every=1)} | options
        return holdfast.adapt(net, spec, source=source, **options)

    return make


def fall_back(adapter):
    """Feed it what does harm until the source model answers; how many batches that took."""
    for count, images in enumerate(OF_ONE_CLASS, start=1):
        quietly(adapter, [images])
        if adapter.health.fallback:
            return count
    raise AssertionError("it never fell back")


DO_HARM = ("memo(views=2,lr=0.001)+ttac", "t3a(keep=3)+lame", "t3a(keep=3)+prior")


@law_of([spec for spec in COMPOSITIONS if not warms_up(spec)])
@pytest.mark.filterwarnings("ignore:.*the stream has batches of")
def test_where_nothing_rings_nothing_is_changed(net, source, adapt, spec):
    """Nor by being watched at all."""
    batches = images_of("clean", 3, count=16) + images_of("noise", 2, count=16)
    calm = until_it_rings(adapt(spec), batches)
    # On clean images nothing rings; under noise, what these make of it is worse than the source's.
    assert len(calm) == len(batches) or (spec.startswith(DO_HARM) and len(calm) >= 3)
    batches = calm
    plain = holdfast.adapt(net, spec, source=without_drifted(source))
    assert plain.health.estimator is None
    expected = run(plain, batches)
    for guard in GUARDS:
        adapter = adapt(spec, guard=guard)
        assert_equal(run(adapter, batches), expected)
        assert not adapter.health.alarms and adapter.health.accuracy is not None
        assert not adapter.last.fallback and not adapter.last.rolled_back


def until_it_rings(adapter, batches):
    """Those before it does."""
    calm = []
    for images in batches:
        quietly(adapter, [images])
        if adapter.health.alarms:
            break
        calm.append(images)
    return calm


def without_drifted(source):
    """The same source, as if it had never been calibrated."""
    other = copy.copy(source)
    other.drifted = None
    other.tensors = {n: t for n, t in source.tensors.items() if not n.startswith("health/")}
    return other


# alarm and none.


def test_alarm_warns_and_changes_nothing_and_none_does_not_even_warn(adapt):
    alarm, none = (adapt("tent", guard=guard) for guard in ("alarm", "none"))
    told = warnings_of(alarm, OF_ONE_CLASS)
    assert any("do harm" in text for text in told)
    assert warnings_of(none, OF_ONE_CLASS) == []
    assert none.health == alarm.health and none.health.alarms
    assert_same_state(state_of(none), state_of(alarm))
    assert adapt("tent").options.guard == "alarm"


def test_what_is_no_matter_of_health_is_told_all_the_same(adapt):
    adapter = adapt("tent", guard="none")
    with adapter.model.fc.register_forward_hook(lambda layer, x, output: output * 1e39):
        (told,) = warnings_of(adapter, images_of("noise"))
    assert "NaN or Inf" in told


# rollback.


@pytest.mark.usefixtures("toy_methods")
@pytest.mark.parametrize("spec", HARMED)
def test_rollback_goes_back_and_on_from_there(adapt, spec):
    adapter = adapt(spec, guard="rollback")
    healthy = {name: value.clone() for name, value in adapter._state.healthy.items()}
    went_back = 0
    for images in OF_ONE_CLASS:
        told = warnings_of(adapter, [images])
        if not adapter.last.rolled_back:
            continue
        went_back += 1
        now = state_of(adapter)
        assert_same_state({name: now[name] for name in healthy}, healthy)
        assert any("The last healthy state was put back" in text for text in told)
        assert adapter.health.distance == 0 and adapter.health.state != "degrading"
    assert went_back
    assert not adapter.health.fallback


def test_the_last_healthy_state_is_one_on_the_way(adapt):
    """What was learnt while all was well is not lost with what harmed."""
    adapter = adapt("tent(lr=0.01)", guard="rollback")
    quietly(adapter, images_of("clean", 100))
    kept = {name: value.clone() for name, value in adapter._state.healthy.items()}
    own = dict(home_net().named_parameters())
    assert not torch.equal(kept["model/norm1.weight"], own["norm1.weight"])
    for images in OF_ONE_CLASS:
        quietly(adapter, [images])
        if adapter.last.rolled_back:
            break
    assert adapter.last.rolled_back
    now = state_of(adapter)
    assert_same_state({name: now[name] for name in kept}, kept)


# fallback.


@pytest.mark.usefixtures("toy_methods")
@pytest.mark.parametrize("spec", HARMED)
def test_in_fallback_the_source_model_answers_and_nothing_is_learnt(net, adapt, spec):
    adapter = adapt(spec, guard="fallback")
    healthy = {name: value.clone() for name, value in adapter._state.healthy.items()}
    fall_back(adapter)
    assert adapter.last.rolled_back and adapter.last.fallback  # it has answered this one already
    for images in OF_ONE_CLASS[:6]:
        before = int(adapter._state.batches)
        logits = adapter(images)
        torch.testing.assert_close(logits, net(images), atol=1e-5, rtol=1e-5)
        assert adapter.last.fallback and adapter.health.fallback
        assert (adapter.last.stepped, adapter.last.batch) == (False, before + 1)
        now = state_of(adapter)
        assert_same_state({name: now[name] for name in healthy}, healthy)
        assert adapter.health.distance == 0
        assert not logits.requires_grad


def test_it_returns_after_eight_good_estimates_in_a_row(net, adapt):
    adapter = adapt("bn", guard="fallback")
    fall_back(adapter)
    clean = images_of("clean", 20)
    quietly(adapter, clean[:7])
    assert adapter.health.fallback
    quietly(adapter, OF_ONE_CLASS[:1])  # one bad one, and counting begins anew
    quietly(adapter, clean[:7])
    assert adapter.health.fallback and adapter.last.fallback
    (logits,) = quietly(adapter, clean[7:8])
    torch.testing.assert_close(logits, net(clean[7]), atol=1e-5, rtol=1e-5)
    assert adapter.last.fallback and not adapter.health.fallback
    again = adapter(clean[8])
    assert not adapter.last.fallback
    assert torch.equal(again, holdfast.adapt(net, "bn")(clean[8]))


def test_each_return_takes_twice_as_many_good_estimates(adapt):
    """A return that was too early costs what it takes to notice."""
    # On clean images it answers as the source model does: every estimate is a good one.
    adapter, took = adapt("bn+steady", guard="fallback"), []
    clean = images_of("clean", 70)
    for _ in range(3):
        adapter._state.fallback.start()
        for count, images in enumerate(clean, start=1):
            quietly(adapter, [images])
            if not adapter.health.fallback:
                took.append(count)
                break
    assert took == [8, 16, 32]
    adapter.reset()
    assert int(adapter._state.fallback.enough) == 8


def test_in_fallback_health_tells_of_the_source_models_answers(adapt):
    adapter = adapt("bn", guard="fallback")
    fall_back(adapter)
    quietly(adapter, OF_ONE_CLASS[:1])
    health = adapter.health
    assert health.fallback and health.accuracy == health.frozen_accuracy
    assert health.interval[0] <= health.accuracy <= health.interval[1]
    # What is tried beside it is worse.
    assert float(adapter._state.monitor.estimates[0]) < health.accuracy - 0.1


def test_small_batches_count_once_there_are_enough_images_for_an_estimate(adapt):
    adapter = adapt("bn+steady", guard="fallback")
    adapter._state.fallback.start()
    singles = torch.cat(images_of("clean", 8)).split(1)
    assert len(singles) == 8 * 32
    for image in singles[:-1]:
        adapter(image)
        assert adapter.health.fallback
    adapter(singles[-1])
    assert not adapter.health.fallback


def test_over_a_stream_that_harms_it_is_no_worse_than_the_source_model(net, adapt):
    """All of it, with what was lost before it was noticed."""

    def accuracy(adapter):
        right = []
        for number in range(250):
            images, labels = labelled(seed=7000 + number, label=number // 3 % CLASSES)
            right.append(quietly(adapter, [images])[0].argmax(1) == labels)
        return torch.cat(right).double().mean().item()

    frozen, harmed = (accuracy(holdfast.adapt(net, spec)) for spec in ("frozen", "tent"))
    guarded = accuracy(adapt("tent", guard="fallback"))
    assert harmed < frozen - 0.5
    assert guarded > frozen - 0.05


@pytest.mark.usefixtures("toy_methods")
@pytest.mark.parametrize("spec", HARMED)
def test_saved_in_the_middle_it_goes_on_as_if_never_stopped(net, source, adapt, tmp_path, spec):
    adapter = adapt(spec, guard="fallback")
    fall_back(adapter)
    quietly(adapter, images_of("clean", 5))
    adapter.save(tmp_path / "state")
    loaded = load(tmp_path / "state", net, spec, source)
    assert loaded.health == adapter.health and loaded.health.fallback
    later = images_of("clean", 6, seed=20) + OF_ONE_CLASS[:4]
    for images in later:
        assert_equal(quietly(loaded, [images]), quietly(adapter, [images]))
        assert loaded.health == adapter.health
        assert loaded.last.fallback == adapter.last.fallback
    assert_same_state(state_of(loaded), state_of(adapter))
    for name in ("healthy", "latest"):
        assert_same_state(getattr(loaded._state, name), getattr(adapter._state, name))


def test_reset_ends_it(adapt):
    adapter = adapt("tent", guard="fallback")
    fresh, first = state_of(adapter), fall_back(adapter)
    adapter.reset()
    assert not adapter.health.fallback
    assert_same_state(state_of(adapter), fresh)
    assert fall_back(adapter) == first


@pytest.mark.parametrize("window", [None, 40])
def test_a_bad_batch_in_fallback_changes_nothing(adapt, window):
    adapter = adapt("tent", guard="fallback", window=window)
    adapter._state.fallback.start()
    quietly(adapter, images_of("clean", 3))
    (images,) = images_of("clean", seed=9)
    before = state_of(adapter)
    bad = images.clone()
    bad[2, 1, 3, 3] = float("nan")
    with pytest.raises(ValueError, match="NaN or Inf"):
        adapter(bad)
    assert_same_state(state_of(adapter), before)
    assert adapter.health.fallback and adapter.last.refused


def test_an_error_in_fallback_changes_nothing(adapt):
    """Of the one model, or of the other; an answer that overflows is reported."""
    adapter = adapt("tent", guard="fallback")
    fall_back(adapter)
    quietly(adapter, images_of("clean", 3))
    (images,) = images_of("clean", seed=9)
    before = state_of(adapter)
    of_source = adapter._state.monitor.reference.network.model
    for model in (of_source, adapter.model):
        fails = model.conv2.register_forward_pre_hook(lambda *_: 1 / 0)
        with fails, pytest.raises(ZeroDivisionError):
            adapter(images)
        assert_same_state(state_of(adapter), before)
        overflows = model.fc.register_forward_hook(lambda layer, x, output: output * 1e39)
        with overflows, pytest.warns(UserWarning, match=r"turned NaN or Inf. Nothing was changed"):
            adapter(images)
        assert adapter.last.refused and adapter.last.fallback
        assert_same_state(state_of(adapter), before)


def test_predict_in_fallback_tells_what_a_call_returns(adapt):
    adapter = adapt("bn", guard="fallback")
    fall_back(adapter)
    (images,) = images_of("clean", seed=9)
    before = state_of(adapter)
    predicted = adapter.predict(images)
    assert_same_state(state_of(adapter), before)
    assert torch.equal(predicted, adapter(images))


# Setting it.


def test_fallback_without_a_calibrated_source_says_what_to_do(net, source):
    for given in (None, without_drifted(source)):
        with pytest.raises(ValueError, match=r"calibrated.*drifted=holdfast\.data\.holdout"):
            holdfast.adapt(net, "tent", source=given, guard="fallback")


def test_rollback_true_is_guard_rollback(net, tmp_path):
    adapter = holdfast.adapt(net, "tent", rollback=True)
    assert (
        adapter.options.guard == "rollback"
        and adapter.options == holdfast.adapt(net, "tent", guard="rollback").options
    )
    run(adapter, images_of("clean", 2))
    adapter.save(tmp_path / "state")
    header, tensors = files.read(tmp_path / "state", KIND)
    assert header["options"].pop("guard") == "rollback"
    del header["options"]["health"]
    for rollback, guard in ((True, "rollback"), (False, "alarm")):
        header["options"]["rollback"] = rollback  # as files of before had it
        files.write(tmp_path / "old", KIND, header, tensors)
        loaded = holdfast.load(tmp_path / "old", net)
        assert loaded.options.guard == guard


@pytest.mark.parametrize("guard", ["roll-back", True, None])
def test_an_unknown_guard_is_an_error(guard):
    with pytest.raises(ValueError, match="guard is one of alarm, none, rollback, fallback"):
        holdfast.adapt(toy_net(), "tent", guard=guard)
