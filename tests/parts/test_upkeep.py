import pytest
import torch
from plain import PlainToy
from toys import stream, toy_net

import holdfast

pytestmark = pytest.mark.usefixtures("toy_methods")


def test_upkeep_runs_after_an_answer_that_follows_the_update():
    """Back at the source after every batch, and yet what leaves was learnt."""
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, "toy-episode(momentum=0)")
    fresh = {name: p.clone() for name, p in adapter.model.named_parameters()}
    for images in stream(("some", "all"), torch.float64):
        toy = PlainToy(net)
        logits = toy(images)[1]
        gradients = toy.gradients(torch.special.entr(logits.softmax(1)).sum(1).mean())
        with torch.no_grad():
            for name, gradient in zip(toy.trained, gradients, strict=True):
                toy.w[name] -= 0.01 * gradient
            expected = toy(images)[1]
        got = adapter(images)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-8)
        assert (got - logits).abs().max() > 1e-3
        for name, weight in adapter.model.named_parameters():
            assert torch.equal(weight, fresh[name])
