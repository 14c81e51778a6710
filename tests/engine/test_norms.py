"""Robust batch norm: its backward is written by hand."""

import copy

import pytest
import torch
from torch import nn
from toys import toy_net

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
