"""The laws hold for what uses the openings, too."""

from contextlib import ExitStack
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from running import KINDS, assert_equal, run
from toys import assert_same_state, state_of, stream, toy_net

import holdfast
from holdfast import Method
from holdfast.parts import Route, Routed

pytestmark = pytest.mark.usefixtures("toy_methods")

ETA = "eta(redundancy=2)"
SPECS = [
    "bn+toy-centre",
    "frozen+toy-centre+toy-mix",
    "toy-mix",
    "t3a(keep=3)+toy-mix",
    "cotta(augment_below=0.8,views=3,restore=0.1)+toy-mix+toy-centre",
    "rotta(capacity=12,every=20)+toy-mix+toy-centre",
    f"{ETA}+toy-mix+toy-centre",
    "toy-blend",
    "bn+toy-calm",
    f"{ETA}+toy-calm+toy-centre",
    "toy-episode",
    "toy-episode+toy-centre",
    f"{ETA}+toy-lights",
    "sar+toy-lights(ensemble=false)",
    "tent(optimizer=adam)+toy-lights+toy-centre",
    "toy-memo(steps=1,views=2)",
    "toy-memo(augment=flip,steps=2,views=1)+toy-centre",
    "toy-part",
]
LAW = pytest.mark.parametrize("spec", SPECS)


@LAW
def test_saved_and_loaded_goes_on(net, spec, tmp_path):
    adapter = holdfast.adapt(net, spec)
    run(adapter, stream(KINDS))
    adapter.save(tmp_path / "state")
    loaded = holdfast.load(tmp_path / "state", net)
    assert_same_state(state_of(loaded), state_of(adapter))
    later = stream(KINDS, seed=2, last=5)
    assert_equal(run(loaded, later), run(adapter, later))
    assert_same_state(state_of(loaded), state_of(adapter))


@LAW
def test_reset_is_fresh(net, spec):
    adapter = holdfast.adapt(net, spec)
    fresh = state_of(adapter)
    first = run(adapter, stream(KINDS))
    adapter.reset()
    assert_same_state(state_of(adapter), fresh)
    assert_equal(run(adapter, stream(KINDS)), first)


@LAW
def test_predict_changes_nothing_and_is_what_leaves_before_an_update(net, spec):
    adapter = holdfast.adapt(net, spec)
    after = adapter._slots.prediction.after
    for images in stream(KINDS):
        before = state_of(adapter)
        predicted = adapter.predict(images)
        assert_same_state(state_of(adapter), before)
        got = adapter(images)
        assert after or torch.equal(predicted, got)


@LAW
def test_a_batch_that_is_not_finite_is_undone(net, spec):
    adapter = holdfast.adapt(net, spec)
    run(adapter, stream(("some", "all")))
    before = state_of(adapter)
    with ExitStack() as hooks:
        for network in adapter._slots.networks:
            fc = network.model.fc
            hooks.enter_context(fc.register_forward_hook(lambda layer, x, output: output * 1e38))
        hooks.enter_context(pytest.warns(UserWarning, match=r"not adapted to: .*NaN or Inf"))
        adapter(stream(("all",))[0])
    assert not adapter.last.stepped
    assert_same_state(state_of(adapter), before)
    fails = adapter.model.conv2.register_forward_pre_hook(lambda *_: 1 / 0)
    with fails, pytest.raises(ZeroDivisionError):
        adapter(stream(("some",))[0])
    assert_same_state(state_of(adapter), before)


@LAW
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_works_without_gradients_switched_on(net, spec, mode):
    expected = run(holdfast.adapt(net, spec), stream(KINDS))
    with mode():
        assert_equal(run(holdfast.adapt(net, spec), stream(KINDS)), expected)


# What is exported of several states is the one met last.
@pytest.mark.parametrize("spec", [spec for spec in SPECS if "toy-lights" not in spec])
def test_frozen_with_batch_statistics_agrees_with_predict(net, spec):
    adapter = holdfast.adapt(net, spec)
    run(adapter, stream(KINDS))
    images = stream(("some",), seed=4)[0].contiguous(memory_format=torch.channels_last)
    assert torch.equal(adapter.frozen(statistics="batch")(images), adapter.predict(images))


def test_a_state_that_is_met_by_the_answer_alone_is_taken_back():
    """A route may name it, and nothing that the batch is to be learnt with."""

    class Blank(Route):
        def forward(self, images, learnt):
            scales = {n: torch.zeros_like(t) for n, t in learnt.items() if n.startswith("model/")}
            return Routed({}, scales)

    @dataclass(frozen=True)
    class ToyBlank(Method):
        name: ClassVar[str] = "toy-blank"
        plugin: ClassVar[bool] = True
        standalone: ClassVar[bool] = False

        def route(self, task, learnt):
            return Blank()

    net = toy_net()
    adapter = holdfast.adapt(net, holdfast.Tent(lr=0.0), ToyBlank())
    images = stream()[0]
    expected = adapter.predict(images)
    assert not torch.allclose(expected, holdfast.adapt(net, "bn").predict(images))
    assert torch.equal(adapter(images), expected)
    after = dict(adapter.model.named_parameters())
    assert all(torch.equal(after[name], weight) for name, weight in net.named_parameters())
