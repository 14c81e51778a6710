import math

import pytest
import torch
from torch import nn

from holdfast.engine.iabn import ByInstance, InstanceNorm
from holdfast.engine.network import Network
from holdfast.engine.norms import ByBatch
from holdfast.engine.stored import ByStored


def images(count=5, channels=3, seed=0):
    """Of which some lie far from the others, in mean or in spread."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, channels, 4, 5, generator=generator, dtype=torch.float64)
    x[0] += 3
    x[1] *= 4
    x[2, 1] = 0.01 * x[2, 1] - 2
    return x


def batch_norm(channels=3, **named):
    torch.manual_seed(1)
    layer = nn.BatchNorm2d(channels, **named).double()
    with torch.no_grad():
        if layer.affine:
            layer.weight.uniform_(0.5, 1.5)
            layer.bias.uniform_(-1, 1)
        layer.running_mean.uniform_(-0.5, 0.5)
        layer.running_var.uniform_(0.5, 2)
    return layer


def restated(x, layer, k, mean, var):
    """Number by number."""
    out, n, eps = torch.empty_like(x), x[0, 0].numel(), layer.eps
    corrected = 0
    for i in range(len(x)):
        for c in range(x.shape[1]):
            own = x[i, c].mean()
            spread = ((x[i, c] - own) ** 2).sum() / (n - 1)
            centre, width = mean[c], var[c]
            for away, limit, kind in (
                (own - mean[c], k * math.sqrt((var[c] + eps) / n), "mean"),
                (spread - var[c], k * (var[c] + eps) * math.sqrt(2 / (n - 1)), "var"),
            ):
                moved = math.copysign(max(abs(away) - limit, 0), away)
                corrected += moved != 0
                centre = centre + moved if kind == "mean" else centre
                width = width + moved if kind == "var" else width
            width = max(width, 0)
            scale = 1 if layer.weight is None else layer.weight[c]
            shift = 0 if layer.bias is None else layer.bias[c]
            out[i, c] = (x[i, c] - centre) / math.sqrt(width + eps) * scale + shift
    return out, corrected


@torch.no_grad()
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("k", [0, 1, 4, 1000])
def test_by_running_statistics(k, affine):
    layer, x = batch_norm(affine=affine).eval(), images()
    expected, corrected = restated(x, layer, k, layer.running_mean, layer.running_var)
    assert corrected == {0: 30, 1000: 0}.get(k, corrected) and (k == 1000 or corrected > 5)
    got = InstanceNorm(layer, k)(x)
    assert (got - expected).abs().max() < 1e-10
    if k == 1000:
        assert torch.allclose(got, layer(x))
    # An image is corrected for itself alone.
    assert (InstanceNorm(layer, k)(x[2:3]) - expected[2:3]).abs().max() < 1e-10


@torch.no_grad()
@pytest.mark.parametrize("k", [0, 1, 4])
def test_by_the_batchs_which_move_the_running_ones(k):
    layer, x = batch_norm(momentum=0.01).train(), images()
    flat = x.transpose(0, 1).flatten(1)
    mean = flat.mean(1)
    var = ((flat - mean[:, None]) ** 2).sum(1) / (flat.shape[1] - 1)
    expected, corrected = restated(x, layer, k, mean, var)
    assert corrected
    stored = [0.99 * layer.running_mean + 0.01 * mean, 0.99 * layer.running_var + 0.01 * var]
    got = InstanceNorm(layer, k)(x)
    assert (got - expected).abs().max() < 1e-10
    assert torch.allclose(layer.running_mean, stored[0])
    assert torch.allclose(layer.running_var, stored[1])
    assert int(layer.num_batches_tracked) == 1


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("k", [0.5, 4.0])
def test_the_gradient_goes_through_everything(training, k):
    layer = batch_norm(2, momentum=0.0).train(training)
    x = images(4, 2)[:, :, :3, :2].clone().requires_grad_(True)
    norm = InstanceNorm(layer, k)
    inputs = (x, layer.weight.detach().clone().requires_grad_(True), layer.bias.detach().clone())

    def run(x, weight, bias):
        return torch.func.functional_call(norm, {"layer.weight": weight, "layer.bias": bias}, (x,))

    assert torch.autograd.gradcheck(run, inputs)


@torch.no_grad()
@pytest.mark.parametrize("dims", [2, 4])
def test_where_an_image_has_one_value_a_channel_it_is_plain(dims):
    layer = (nn.BatchNorm1d if dims == 2 else nn.BatchNorm2d)(3).eval()
    layer.running_mean.fill_(0.3)
    x = torch.randn(6, 3, *[1] * (dims - 2))
    assert torch.equal(InstanceNorm(layer, 0.0)(x), layer(x))


class Net(nn.Module):
    """One norm layer over a map, one over single values."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.mid, self.flat = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        x = self.norm(self.conv(x)).relu().mean((2, 3))
        return self.fc(self.flat(self.mid(x)).relu())


@pytest.mark.parametrize("instance", [True, False])
def test_a_single_image_to_learn_from(instance):
    """A layer that sees one value a channel goes by what it has stored, and stores nothing."""
    torch.manual_seed(0)
    network = Network(Net().double().eval())
    network.normalise(ByInstance(ByStored(0.5)) if instance else ByStored(0.5))
    x = images()[:1]
    before = {name: t.clone() for name, t in network.statistics.tensors.items()}
    logits = network(x, record=True)[1]
    assert logits.isfinite().all()
    moved = {n for n, t in network.statistics.tensors.items() if not torch.equal(t, before[n])}
    assert moved == {f"norm.{b}" for b in ("running_mean", "running_var", "num_batches_tracked")}
    assert not any(layer.training for layer in network.model.modules())


def test_by_batch_is_as_of_the_statistics_that_are_corrected():
    assert ByInstance(ByBatch()).by_batch and not ByInstance(ByStored(0.1)).by_batch
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)))
    network.normalise(ByInstance(ByStored(0.1)))
    assert network.statistics is None


def test_half_precision_comes_out_as_it_went_in():
    layer = batch_norm().float().eval()
    x = images().bfloat16()
    assert InstanceNorm(layer, 4.0)(x).dtype == torch.bfloat16


def test_a_layer_that_does_more_than_normalise_says_what_to_do():
    class WithRelu(nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x).relu()

    net = nn.Sequential(nn.Conv2d(3, 4, 3), WithRelu(4))
    with pytest.raises(ValueError, match=r"layer '1', a WithRelu.*iabn=false"):
        Network(net).normalise(ByInstance(ByStored(0.1)))
