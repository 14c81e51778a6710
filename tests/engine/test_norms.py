"""Statistics that a method brings."""

import pytest
import torch
from toy_methods import blended
from toys import CLASSES, stream, toy_net

import holdfast

pytestmark = pytest.mark.usefixtures("toy_methods")


def test_statistics_are_what_a_method_brings():
    net, (images,) = toy_net(dtype=torch.float64), stream(("some",), torch.float64)
    for alpha in (0.0, 0.3, 1.0):
        plain = toy_net(dtype=torch.float64)
        for layer in (plain.norm1, plain.norm2):
            layer.register_forward_hook(lambda layer, x, _, a=alpha: blended(layer, x[0], a))
        with torch.no_grad():
            expected = plain(images)
        for spec in (f"toy-blend(alpha={alpha})", f"bn+toy-calm(alpha={alpha})"):
            adapter = holdfast.adapt(net, spec)
            torch.testing.assert_close(adapter(images), expected)
            torch.testing.assert_close(adapter.frozen()(images), expected)
            assert adapter(images[:1]).shape == (1, CLASSES)
    # On a host that does not go by the batch's there is nothing to replace.
    calm = holdfast.adapt(net, "frozen+toy-calm")
    assert torch.equal(calm(images), holdfast.adapt(net, "frozen")(images))


def test_gradients_go_through_statistics_that_a_plugin_brings():
    net, (images,) = toy_net(dtype=torch.float64), stream(("all",), torch.float64)
    adapter = holdfast.adapt(net, "tent(momentum=0,lr=0.01)+toy-calm")
    adapter(images)
    plain = toy_net(dtype=torch.float64)
    for layer in (plain.norm1, plain.norm2):
        layer.register_forward_hook(lambda layer, x, _: blended(layer, x[0], 0.3))
    torch.special.entr(plain(images).softmax(1)).sum(1).mean().backward()
    for name in ("norm1.weight", "norm2.bias"):
        expected = plain.get_parameter(name) - 0.01 * plain.get_parameter(name).grad
        torch.testing.assert_close(adapter.model.get_parameter(name), expected)
