import pytest
import torch
from follow import TOLERANCE, close
from plain import PlainToy
from plain_methods import source_features
from toys import source_batches, state_of, stream, toy_net, toy_source

import holdfast


class PlainShift:
    """logits = W (f + μ_S − m) + b, with m of earlier batches; the first batch is not shifted."""

    def __init__(self, net, momentum=0.9, statistics="source"):
        batch = PlainToy(net, trained=())
        features = {
            "source": lambda images: source_features(net, images),
            "batch": lambda images: batch(images)[0].detach(),
        }
        self.features = features[statistics]
        self.weight, self.bias = net.fc.weight.detach(), net.fc.bias.detach()
        of_source = [self.features(images) for images, _ in source_batches(self.weight.dtype)]
        self.source = torch.cat(of_source).mean(0)
        self.momentum, self.mean = momentum, None

    def __call__(self, images):
        f = self.features(images)
        by = 0 if self.mean is None else self.source - self.mean
        logits = (f + by) @ self.weight.T + self.bias
        own = f.mean(0)
        m = self.momentum
        self.mean = own if self.mean is None else m * self.mean + (1 - m) * own
        return logits


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("statistics", ["source", "batch"])
@pytest.mark.parametrize("momentum", [0.9, 0.5, 0, 1])
def test_shift(momentum, statistics, dtype):
    net = toy_net(dtype=dtype)
    spec = f"shift(momentum={momentum},statistics={statistics})"
    adapter = holdfast.adapt(net, spec, source=toy_source(net))
    plain = PlainShift(net, momentum, statistics)
    apart = 0.0
    for index, images in enumerate(stream(dtype=dtype, last=5)):
        predicted, unmoved = adapter.predict(images), adapter.features(images)
        expected = plain(images)
        close(predicted, expected, dtype, f"predicted of batch {index}")
        close(adapter(images), expected, dtype, f"logits of batch {index}")
        close(state_of(adapter)["prediction/mean"], plain.mean, dtype, f"mean {index}")
        close(unmoved, plain.features(images), dtype, "features, which are not moved")
        assert not adapter.last.stepped and adapter.last.forwards == 1
        apart = max(apart, float((expected - (unmoved @ plain.weight.T + plain.bias)).abs().max()))
    assert apart > 0.1


def test_defaults():
    for preset in (None, "cifar100-c", "imagenet-c"):
        host = holdfast.compose("shift", preset=preset).host
        assert (host.momentum, host.statistics) == (0.9, "source")


def test_what_is_exported_has_the_shift_of_now():
    net = toy_net(dtype=torch.float64)
    adapter, plain = holdfast.adapt(net, "shift", source=toy_source(net)), PlainShift(net)
    images = stream(("some",), torch.float64, seed=4)[0]
    close(adapter.frozen()(images), net(images), torch.float64, "before the first batch")
    for batch in stream(("all", "some", "none"), torch.float64):
        adapter(batch)
        plain(batch)
    frozen = adapter.frozen()
    expected = plain(images)
    close(frozen(images), expected, torch.float64, "a batch")
    close(frozen(images[:1]), expected[:1], torch.float64, "one image")


class Places(torch.nn.Module):
    """A net whose head is a 1×1 convolution over a map, or a linear layer over tokens."""

    def __init__(self, tokens):
        super().__init__()
        self.tokens = tokens
        self.body = torch.nn.Conv2d(3, 6, 3, stride=2)
        self.head = torch.nn.Linear(6, 7) if tokens else torch.nn.Conv2d(6, 7, 1)

    def forward(self, images):
        x = self.body(images).relu()
        if self.tokens:
            return self.head(x.flatten(2).mT).mean(1)
        return self.head(x).mean((2, 3))


@pytest.mark.parametrize("tokens", [False, True])
def test_heads_at_several_places(tokens):
    torch.manual_seed(0)
    net = Places(tokens).double()
    source = holdfast.Source.from_loader(net, source_batches(torch.float64), head="head")
    adapter = holdfast.adapt(net, "shift", source=source, head="head")
    first, second = stream(("some", "all"), torch.float64)
    adapter(first)
    with torch.no_grad():
        f = [net.body(x).relu().mean((2, 3)) for x in (first, second)]
        of_source = [net.body(x).relu().mean((2, 3)) for x, _ in source_batches(torch.float64)]
        moved = f[1] + torch.cat(of_source).mean(0) - f[0].mean(0)
        expected = moved @ net.head.weight.flatten(1).T + net.head.bias
    close(adapter.predict(second), expected, torch.float64, "predict")
    close(adapter.frozen()(second), expected, torch.float64, "frozen")


def test_a_source_saved_before_there_was_a_shift_serves(tmp_path):
    """What it takes is in every source file; what is missing, a loader makes."""
    net = toy_net(dtype=torch.float64)
    toy_source(net).save(tmp_path / "source")
    images = stream(("some", "all"), torch.float64)
    plain = PlainShift(net)
    adapter = holdfast.adapt(net, "shift", source=holdfast.Source.load(tmp_path / "source"))
    for batch in images:
        close(adapter(batch), plain(batch), torch.float64, "logits")
    with pytest.raises(ValueError, match=r"holds no prototypes.*loader=…"):
        holdfast.adapt(
            net, "shift(statistics=batch)", source=holdfast.Source.load(tmp_path / "source")
        )


def test_without_a_source_and_on_steady_it_says_what_to_do():
    with pytest.raises(ValueError, match=r"shift needs prototypes.*from_loader"):
        holdfast.adapt(toy_net(), "shift")
    with pytest.raises(ValueError, match=r"shift\(statistics=batch\)\+steady"):
        holdfast.compose("shift+steady")
    holdfast.compose("shift(statistics=batch)+steady")
    with pytest.raises(ValueError, match=r"shift never takes a step"):
        holdfast.compose("shift+debias")
