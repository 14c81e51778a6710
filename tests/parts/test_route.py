"""Which of several learnt states a batch meets."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from toy_methods import ToyLights
from toys import stream, toy_net

import holdfast
from holdfast import Method
from holdfast.parts import Route, Routed

pytestmark = pytest.mark.usefixtures("toy_methods")


def test_each_batch_meets_the_state_it_is_routed_to(net):
    """Two streams in turns, and each state is as if the other stream were not there."""
    dark, bright = stream(("none",) * 3), stream(("all",) * 3)
    adapter = holdfast.adapt(net, "tent+toy-lights(ensemble=false)")
    alone = {kind: holdfast.adapt(net, "tent") for kind in ("dark", "bright")}
    for one, other in zip(dark, bright, strict=True):
        assert torch.equal(adapter(one), alone["dark"](one))
        assert torch.equal(adapter(other), alone["bright"](other))
    assert adapter._state.route.batches.tolist() == [3, 3]
    # What was met last is what is there.
    images = bright[0].contiguous(memory_format=torch.channels_last)
    frozen = adapter.frozen(statistics="batch")(images)
    assert torch.equal(frozen, alone["bright"].predict(images))


def test_a_batch_may_be_predicted_with_another_state_than_it_is_learnt_with(net):
    (bright,) = stream(("all",))
    adapter = holdfast.adapt(net, "tent(lr=0.01)+toy-lights")
    alone = holdfast.adapt(net, "tent(lr=0.01)")
    adapter(bright), alone(bright)
    # The mean of the state that has learnt and of the source's.
    half = toy_net()
    with torch.no_grad():
        for name, weight in half.named_parameters():
            weight.lerp_(alone.model.get_parameter(name), 0.5)
    torch.testing.assert_close(adapter.predict(bright), holdfast.adapt(half, "bn").predict(bright))
    assert torch.equal(adapter(bright), adapter(bright)) is False
    assert adapter.last.forwards == 2


def test_two_routes_are_an_error(net, monkeypatch):
    monkeypatch.setattr(holdfast.Tent, "route", ToyLights.route, raising=False)
    monkeypatch.setattr(holdfast.Tent, "ensemble", False, raising=False)
    with pytest.raises(ValueError, match="tent and toy-lights each choose the state"):
        holdfast.adapt(net, "tent+toy-lights")


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
