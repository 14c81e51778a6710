"""bn: by the batch, mixed with the source's statistics, and by running averages."""

import copy

import pytest
import torch
import torch.nn.functional as F
from follow import TOLERANCE, close
from plain import PlainToy
from running import run
from torch import nn
from toys import GAIN, assert_same_state, state_of, stream, toy_net

import holdfast
from holdfast.explain.card import card
from holdfast.parts import ByBlend

NORMS = ("norm1", "norm2")


class Mixed:
    """The toy net, each norm layer by hand: what share the batch has, and how many values less one
    its variance is divided by."""

    def __init__(self, net, share):
        self.w = {name: t.detach().clone() for name, t in net.state_dict().items()}
        self.share = share

    def norm(self, x, name):
        w, share = self.w, self.share(len(x))
        rows = x.transpose(0, 1).flatten(1)
        mean = rows.sum(1) / rows.shape[1]
        var = ((rows - mean[:, None]) ** 2).sum(1) / (rows.shape[1] - 1)
        mean = (1 - share) * w[f"{name}.running_mean"] + share * mean
        var = (1 - share) * w[f"{name}.running_var"] + share * var
        self.used = {**getattr(self, "used", {}), name: (mean, var)}
        y = (x - mean[:, None, None]) / (var + 1e-5).sqrt()[:, None, None]
        return y * w[f"{name}.weight"][:, None, None] + w[f"{name}.bias"][:, None, None]

    def __call__(self, images):
        w = self.w
        x = F.conv2d(images, w["conv1.weight"], w["conv1.bias"], padding=1)
        x = self.norm(x, "norm1").clamp_min(0)
        x = F.conv2d(x, w["conv2.weight"], w["conv2.bias"], stride=2, padding=1)
        x = self.norm(x, "norm2").clamp_min(0).mean((2, 3))
        features = x * (GAIN * images.mean((1, 2, 3)))[:, None]
        return features @ w["fc.weight"].T + w["fc.bias"]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_bn_normalises_each_batch_by_itself(dtype):
    net = toy_net(dtype=dtype)
    plain = PlainToy(net, trained=())
    adapter = holdfast.adapt(net, "bn")
    for images in stream(dtype=dtype, last=5):
        close(adapter(images), plain(images)[1], dtype, "logits")
    assert (adapter(images) - net(images)).abs().max() > 0.01


def test_bn_keeps_the_weights():
    net = toy_net()
    before = copy.deepcopy(net.state_dict())
    adapter = holdfast.adapt(net, "bn")
    for images in stream():
        adapter(images)
    for name, weight in adapter.model.named_parameters():
        assert torch.equal(weight, before[name])


def test_bn_on_a_net_without_batch_norm_says_what_to_do():
    with pytest.raises(ValueError, match=r"bn .*no batch norm layer.*frozen"):
        holdfast.adapt(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)), "bn")


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("setting", "share"),
    [
        ("alpha=0.1", lambda n: 0.1),
        ("alpha=1", lambda n: 1),
        ("prior=16", lambda n: n / (16 + n)),
        ("prior=0", lambda n: 1),
    ],
)
def test_mixed_statistics(setting, share, dtype):
    """Of 16 images, of 5, and of one: n is what is there."""
    net = toy_net(dtype=dtype)
    adapter, plain = holdfast.adapt(net, f"bn({setting})"), Mixed(net, share)
    batches = stream(dtype=dtype, last=5)
    for images in [*batches, batches[0][:1], batches[2][3:4]]:
        close(adapter(images), plain(images), dtype, "logits")
    assert (adapter(batches[0]) - holdfast.adapt(net, "bn")(batches[0])).abs().max() > 1e-3
    assert all(torch.equal(p, net.get_parameter(n)) for n, p in adapter.model.named_parameters())


def test_what_is_exported_of_mixed_statistics_is_their_recent_average():
    net = toy_net(dtype=torch.float64)
    adapter, plain = holdfast.adapt(net, "bn(prior=8)"), Mixed(net, lambda n: n / (8 + n))
    average = {
        n: [getattr(net.get_submodule(n), f"running_{k}") for k in ("mean", "var")] for n in NORMS
    }
    for images in stream(dtype=torch.float64, last=5):
        adapter(images)
        plain(images)
        share = len(images) / (len(images) + 16)
        for name in NORMS:
            pairs = zip(average[name], plain.used[name], strict=True)
            average[name] = [(1 - share) * old + share * new for old, new in pairs]
    frozen = adapter.frozen()
    for name in NORMS:
        layer = frozen.get_submodule(name)
        assert type(layer) is nn.BatchNorm2d and not layer.training
        torch.testing.assert_close(layer.running_mean, average[name][0])
        torch.testing.assert_close(layer.running_var, average[name][1])
    frozen(images[:1])  # serves one image


def test_mixed_statistics_under_two_names_and_of_layers_that_run_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 1)
            self.norm = self.alias = nn.BatchNorm2d(3)
            self.fc = nn.Linear(3, 4)

        def forward(self, x):
            return self.fc(self.norm(self.conv(self.alias(x))).mean((2, 3)))

    images = stream(("all",))[0]
    adapter = holdfast.adapt(Twice().eval(), "bn(alpha=0.3)")
    got = adapter(images)
    exported = adapter.frozen(statistics="batch")
    assert exported.norm is exported.alias and not isinstance(exported.norm, nn.BatchNorm2d)
    torch.testing.assert_close(exported(images), got)


def test_one_value_has_a_mean_but_no_spread():
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 9), nn.BatchNorm1d(9), nn.Linear(9, 7)).eval()
    image = stream(("all",))[0][:1]
    got = holdfast.adapt(net, "bn(alpha=0.5)")(image)
    x = net[1](image.flatten(1))
    expected = net[3](0.5 * x / (1 + 1e-5) ** 0.5)  # half of the mean is the value itself
    torch.testing.assert_close(got, expected.detach())


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("shape", [(5, 3, 2, 2), (6, 3)])
def test_no_gradient_goes_through_the_batchs_share(shape, each):
    generator = torch.Generator().manual_seed(0)
    layer = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(3).double().eval()
    x = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(shape, generator=generator, dtype=torch.float64)
    statistics = ByBlend(alpha=0.4, each=each).start({"norm": layer})
    with statistics.predicting():
        out = layer(x)
    (gradient,) = torch.autograd.grad((out * weights).sum(), x)
    # As if mean and variance were given: y is linear in x, with a slope for each image or for all.
    kept = x.detach()
    axes = [d for d in range(len(shape)) if d != 1 and not (each and d == 0)]
    values = kept.numel() // (3 * (len(kept) if each else 1))
    mean = kept.mean(axes, keepdim=True) if axes else kept
    var = ((kept - mean) ** 2).sum(axes, keepdim=True) / (values - 1) if values > 1 else 1
    slope = (0.6 * 1 + 0.4 * var + 1e-5) ** -0.5 if values > 1 else (1 + 1e-5) ** -0.5
    torch.testing.assert_close(gradient, weights * slope)


def test_each_image_by_itself_is_a_batch_of_one():
    layer = nn.BatchNorm2d(3).eval()
    statistics = ByBlend(alpha=0.4, each=True).start({"norm": layer})
    x = torch.rand(5, 3, 4, 4)
    with statistics.predicting():
        together, apart = layer(x), torch.cat([layer(image[None]) for image in x])
    torch.testing.assert_close(together, apart)
    with statistics.aside(len(x)):  # as when learning: all of them are one batch
        assert not torch.allclose(layer(x), together, atol=1e-3)
        torch.testing.assert_close(layer(x[:1]), together[:1])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_running_averages_persist_and_predict(dtype):
    """Two forwards: by the batch, which goes into the averages; then by these."""
    net = toy_net(dtype=dtype)
    plain = copy.deepcopy(net)
    adapter = holdfast.adapt(net, "bn(statistics=running)")
    for images in stream(dtype=dtype, last=5):
        with torch.no_grad():
            for layer in (plain.norm1, plain.norm2):
                layer.train()
            plain(images)
            plain.eval()
            expected = plain(images)
        close(adapter(images), expected, dtype, "logits")
        assert adapter.last.forwards == 2
    frozen = adapter.frozen()
    for name in NORMS:
        moved, own = frozen.get_submodule(name), net.get_submodule(name)
        close(moved.running_var, plain.get_submodule(name).running_var, dtype, name)
        assert (moved.running_mean - own.running_mean).abs().max() > 0.01
    fresh = holdfast.adapt(net, "bn(statistics=running)")
    adapter.reset()
    assert_same_state(state_of(adapter), state_of(fresh))


def test_running_averages_are_rolled_back_with_what_was_learnt():
    adapter = holdfast.adapt(toy_net(), "bn(statistics=running)", guard="rollback")
    names = [name for name in state_of(adapter) if name.startswith("model/statistics")]
    assert len(names) == 6 and set(names) <= adapter._state.healthy.keys()
    fresh = state_of(adapter)
    run(adapter, stream())
    assert int(adapter._state.watch.images) > 0  # a collapse is looked for
    adapter._state.go_back()
    assert all(torch.equal(state_of(adapter)[name], fresh[name]) for name in names)


@pytest.mark.parametrize(
    ("spec", "advice"),
    [
        ("bn(alpha=0.1,prior=16)", r"write bn\(alpha=0.1\), or bn\(prior=16\)"),
        ("bn(alpha=0.2,statistics=running)", r"running\), or bn\(alpha=0.2\)"),
        ("bn(prior=3,statistics=running)", r"running\), or bn\(prior=3\)"),
        ("bn(alpha=2)", "at least 0 and at most 1"),
        ("bn(prior=-1)", "at least 0"),
    ],
)
def test_settings_that_do_not_go_together(spec, advice):
    with pytest.raises(ValueError, match=advice):
        holdfast.compose(spec)


def test_a_layer_without_running_statistics_cannot_be_mixed():
    net = toy_net(lambda channels: nn.BatchNorm2d(channels, track_running_stats=False))
    with pytest.raises(ValueError, match=r"'norm1' keeps none"):
        holdfast.adapt(net, "bn(alpha=0.1)")


def test_the_card_says_which_statistics():
    assert card("bn").predicts == "the network's logits under batch statistics"
    assert "mixed" in card("bn(prior=16)").predicts
    assert "running" in card("bn(statistics=running)").predicts
    assert "bn+prior is something else" in card("bn(prior=16)").parts[0].note
    values = [entry.value for entry in card("bn").parts[0].settings]
    assert values == ["unset", "unset", "batch"]
    assert str(holdfast.compose("bn(alpha=0.1)")) == "bn(alpha=0.1,statistics=batch)"
