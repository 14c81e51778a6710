"""Robust batch norm, whose backward is written by hand; and statistics that a method brings."""

import copy

import pytest
import torch
from torch import nn
from toy_methods import blended
from toys import CLASSES, stream, toy_net

import holdfast
from holdfast.parts import ByMixture


@pytest.mark.parametrize("share", [0.05, 0.6, 1.0])
@pytest.mark.parametrize("shape", [(5, 3, 2, 2), (6, 3)])
def test_gradients_go_through_the_batchs_part_of_the_statistics(shape, share):
    """Against numerical ones, of the layer's output as a function of its input."""
    kind = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
    layer = kind(3).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([0.7, 1.3, -0.9]))
        layer.running_mean.copy_(torch.tensor([0.2, -0.4, 0.1]))
        layer.running_var.copy_(torch.tensor([0.5, 2.0, 1.1]))

    def normalised(x):
        own = copy.deepcopy(layer)  # each call begins where the first began
        with ByMixture(share).start({"norm": own}).recording(len(x)):
            return own(x)

    x = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(normalised, x)


def test_a_layer_without_running_statistics_is_an_error():
    net = toy_net(lambda channels: nn.BatchNorm2d(channels, track_running_stats=False))
    with pytest.raises(ValueError, match=r"'norm1' keeps none"):
        holdfast.adapt(net, "rotta")


@pytest.mark.usefixtures("toy_methods")
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


@pytest.mark.usefixtures("toy_methods")
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
