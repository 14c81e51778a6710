"""The law of a fleet under steady: drift, two kinds of image and single images are each stream's
own."""

import pytest
import torch
from fleets import assert_alike
from steady_toys import batches, source_of, varied_net
from torch import nn
from toys import toy_net

import holdfast

pytestmark = pytest.mark.filterwarnings("ignore:The source's labels")
NETS = {"toy": toy_net, "varied": varied_net}
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}


def rounds(dtype):
    """Calm, drifted, of two kinds and single images beside each other, in every combination that
    comes up when each stream sees all of them in an order of its own."""
    every = batches(dtype)
    for number in range(len(every)):
        yield {str(s): every[(number + 3 * s) % len(every)] for s in range(4)}


def follow(net, spec, dtype, **options):
    source = source_of(net)
    fleet = holdfast.Fleet(net, spec, source=source, **options)
    adapters = {
        str(number): holdfast.adapt(net, spec, source=source, **options) for number in range(4)
    }
    seen = []
    for given in rounds(dtype):
        for name, logits in fleet.step(given).items():
            expected = adapters[name](given[name])
            torch.testing.assert_close(logits, expected, atol=TOLERANCE[dtype], rtol=0)
            did, should = fleet.last(name), adapters[name].last
            assert did.split == should.split
            assert dict(did.alpha) == pytest.approx(should.alpha, abs=10 * TOLERANCE[dtype])
            assert dict(did.drift) == pytest.approx(should.drift, rel=10 * TOLERANCE[dtype])
            seen.append(did)
    assert_alike(fleet, adapters, TOLERANCE[dtype])
    return fleet, adapters, seen


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("spec", ["tent(lr=0.005)+steady", "eata(redundancy=2)+debias+steady"])
def test_streams_believe_what_is_their_own(kind, spec, dtype, groups):
    _, _, seen = follow(NETS[kind](dtype=dtype), spec, dtype)
    assert groups == [4] * len(batches(dtype))
    alphas = [alpha for did in seen for alpha in did.alpha.values()]
    assert min(alphas) == 0 and max(alphas) > 0.5
    assert {len(did.split) for did in seen} == {0, 2}


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("spec", ["tent(lr=0.005)+steady", "bn(prior=16)", "bn(alpha=0.1)"])
def test_single_images_of_all_streams_at_once(kind, spec, groups):
    net = NETS[kind](dtype=torch.float64)
    source = source_of(net)
    fleet = holdfast.Fleet(net, spec, source=source)
    adapters = {name: holdfast.adapt(net, spec, source=source) for name in "abc"}
    for images in batches(torch.float64):
        given = dict(zip("abc", images[:3].split(1), strict=False))
        for name, logits in fleet.step(given).items():
            expected = adapters[name](given[name])
            torch.testing.assert_close(logits, expected, atol=1e-8, rtol=0)
    assert groups.count(3) == 10  # the others have one image in all
    assert_alike(fleet, adapters, 1e-8)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision(precision, groups):
    net, spec = toy_net(), "tent(lr=0.0005)+steady"
    options = {"source": source_of(net), "precision": precision}
    half = holdfast.Fleet(net, spec, **options)
    adapters = {str(n): holdfast.adapt(net, spec, **options) for n in range(4)}
    for given in rounds(torch.float32):
        for name, logits in half.step(given).items():
            expected = adapters[name](given[name])
            torch.testing.assert_close(logits, expected, atol=0.3, rtol=0.1)
            assert half.last(name).stepped and half.last(name).gradient_norm == pytest.approx(
                adapters[name].last.gradient_norm, rel=0.1, abs=1e-3
            )
            for layer, alpha in adapters[name].last.alpha.items():
                assert half.last(name).alpha[layer] == pytest.approx(alpha, abs=0.05)
    assert groups == [4] * len(batches(torch.float32))


def test_a_layer_that_never_ran_on_the_source(groups):
    """It is as the source left it, which streams in one forward could not tell apart."""

    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.spare = toy_net(), nn.BatchNorm2d(3)
            self.all = False

        def forward(self, images):
            return self.net(self.spare(images) if self.all else images)

    net = Sometimes().eval()
    source = source_of(net)
    fleet = holdfast.Fleet(net, "tent+steady", source=source)
    adapters = {name: holdfast.adapt(net, "tent+steady", source=source) for name in "ab"}
    for number, images in enumerate(batches(torch.float32)[:4]):
        for each in (fleet._network, *adapters.values()):
            each.model.all = number > 1
        for name, logits in fleet.step({"a": images, "b": images[:5]}).items():
            expected = adapters[name](images if name == "a" else images[:5])
            torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    assert groups == [2, 2]
    assert_alike(fleet, adapters, 1e-4)
