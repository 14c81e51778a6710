"""Which of several learnt states a batch meets."""

import pytest
import torch
from toy_methods import ToyLights
from toys import stream, toy_net

import holdfast

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
