"""Refining the logits that leave."""

import pytest
import torch
from running import KINDS, run
from toy_methods import Centre, Neighbours, mixed
from toys import assert_same_state, state_of, stream

import holdfast

pytestmark = pytest.mark.usefixtures("toy_methods")


def test_refiners_are_chained_in_the_order_written(net):
    images = stream(KINDS)
    for order in ((Centre(), Neighbours()), (Neighbours(), Centre())):
        names = {Centre: "toy-centre", Neighbours: "toy-mix"}
        spec = "+".join(["bn", *(names[type(rule)] for rule in order)])
        adapter, host = holdfast.adapt(net, spec), holdfast.adapt(net, "bn")
        for batch in images:
            expected, features = host(batch), host.features(batch)
            for rule in order:
                if isinstance(rule, Centre):
                    mean = rule.mean.clone()
                    rule.mean.copy_(0.9 * mean + 0.1 * expected.mean(0))
                    expected = expected - mean
                else:
                    expected = mixed(features, expected)
            assert torch.equal(adapter(batch), expected)


@pytest.mark.parametrize(
    "host", ["eta(redundancy=2)", "rotta(capacity=12,every=20)", "t3a(keep=3)", "toy-episode"]
)
def test_what_is_learnt_comes_from_unrefined_predictions(net, host):
    refined, plain = holdfast.adapt(net, f"{host}+toy-centre"), holdfast.adapt(net, host)
    for images in stream(KINDS):
        refined(images), plain(images)
    state = state_of(refined)
    assert bool(state.pop("refine/0/mean").any()) == (host != "toy-episode")  # it forgets
    # What watches looks at what leaves.
    learnt = [name for name in state if not name.startswith(("watch/", "health/"))]
    assert_same_state(*({name: s[name] for name in learnt} for s in (state, state_of(plain))))


def test_a_refiner_sees_the_features_of_the_net_that_predicts(net):
    """For RoTTA that is the teacher, by its stored statistics."""
    adapter = holdfast.adapt(net, "rotta(capacity=12,every=20)+toy-mix")
    run(adapter, stream(KINDS))
    images = stream(("some",), seed=4)[0]
    teacher = holdfast.adapt(adapter._slots.task.teacher.network.plain_model(), "frozen")
    expected = mixed(teacher.features(images), teacher.predict(images))
    torch.testing.assert_close(adapter.predict(images), expected)


def test_a_refiner_sees_a_window_and_the_newest_leave(net):
    windowed, whole = (holdfast.adapt(net, "frozen+toy-mix", window=w) for w in (16, None))
    first, second = stream(("some", "all"))
    windowed(first)
    assert torch.equal(windowed(second[:4]), whole(torch.cat([first[4:], second[:4]]))[-4:])


def test_a_refiner_that_cannot_be_exported_says_so(net):
    adapter = holdfast.adapt(net, "bn+toy-mix")
    with pytest.raises(ValueError, match=r"Neighbours refines .*adapter\.predict"):
        adapter.frozen()


def test_a_plugin_that_acts_through_steps_still_needs_a_host_that_takes_some():
    with pytest.raises(ValueError, match=r"bn never takes a step, so toy-lights has nothing"):
        holdfast.compose("bn+toy-lights")
