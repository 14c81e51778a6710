"""The law of a fleet: streams that take their steps at once are adapters of their own."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pytest
import torch
from compositions import AT_ONCE, COMPOSITIONS
from fleets import assert_alike
from steady_toys import varied_net
from torch import nn
from torch.func import functional_call, grad, vmap
from toys import group_norm, stream, toy_net, toy_source

import holdfast
from holdfast.parts import Term, TermResult
from holdfast.recipes import registry

GROUPING = [spec for spec in COMPOSITIONS if holdfast.compose(spec).groups]
GROUPING += [
    "tent(optimizer=adam)",
    "eata(redundancy=2,nesterov=true)+debias+ensemble+prior",
    "roid(weight_consistency=0)",
    "cmf(weight_consistency=0,noise=0.5)+debias+steady",
    "shift(statistics=batch)+steady",
]
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}


def forwards_of(fleet):
    """A list that grows with every forward of the network that streams share."""
    seen = []
    fleet._network.model.register_forward_hook(lambda *_: seen.append(1))
    return seen


def batches(dtype):
    """Batches of some streams each time: of one size and of different sizes, of a stream without
    reliable images, of one that comes late, of one that is not there for a while."""
    some, other, every = (stream(kinds, dtype, seed=s) for s, kinds in enumerate(KINDS))
    dark = stream(("none",) * 5, dtype, seed=9)
    # The first three of a batch are so nearly alike that ROID, which rescales what tells them
    # apart, 3e-5, to [0, 1], has four digits left in float32.
    return [
        {"door": some[0], "night": dark[0], "yard": every[0]},
        {"door": some[1][:5], "night": dark[1][:2], "yard": every[1][:9]},
        {"door": some[2], "night": dark[2][-3:], "late": other[2]},
        {"yard": every[3][:6], "late": other[3][:6], "night": dark[3][:6]},
        {"late": other[4], "door": some[4], "night": dark[4], "yard": every[4]},
    ]


KINDS = [("some",) * 5, ("all", "some", "some", "all", "some"), ("all",) * 5]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    "spec",
    [pytest.param(s, marks=[] if s in AT_ONCE else pytest.mark.slow) for s in GROUPING],
)
def test_a_fleet_is_as_many_adapters(spec, dtype, groups):
    net = toy_net(dtype=dtype)
    source = toy_source(net, 16)
    fleet = holdfast.Fleet(net, spec, source=source)
    forwards = forwards_of(fleet)
    adapters = {}
    for given in batches(dtype):
        for name in given.keys() - adapters.keys():
            adapters[name] = holdfast.adapt(net, spec, source=source)
        # 0 to 255: refused, which the others do not see.
        refused = {}
        found = fleet.step({**given, "broken": 255 * given["night"]}, refused)
        assert list(found) == list(given) and list(refused) == ["broken"]
        assert "divide by 255" in str(refused["broken"]) and "broken" not in fleet
        for name, images in given.items():
            expected = adapters[name](images)
            torch.testing.assert_close(found[name], expected, atol=TOLERANCE[dtype], rtol=0)
            did, should = fleet.last(name), adapters[name].last
            assert did.images == should.images and did.reliable == should.reliable
            assert (did.stepped, did.due, did.batch) == (should.stepped, should.due, should.batch)
            assert (did.forwards, did.backwards) == (should.forwards, should.backwards)
            for label, loss in should.losses.items():
                assert did.losses[label] == pytest.approx(loss, rel=10 * TOLERANCE[dtype])
            assert did.split == should.split
            assert dict(did.alpha) == pytest.approx(should.alpha, abs=10 * TOLERANCE[dtype])
            assert dict(did.drift) == pytest.approx(should.drift, rel=10 * TOLERANCE[dtype])
    assert groups == [len(given) for given in batches(dtype)] and len(forwards) == len(groups)
    assert_alike(fleet, adapters, TOLERANCE[dtype])


@dataclass(frozen=True)
class Noisy(holdfast.Learner):
    """Tent at a strength that is drawn for each batch."""

    groups: ClassVar[bool] = True

    def terms(self, task):
        return [NoisyEntropy(task.draws)]


class NoisyEntropy(Term):
    def __init__(self, draws):
        super().__init__("entropy")
        self.draws = draws

    def forward(self, step):
        with self.draws.scope():
            strength = torch.rand(())
        return TermResult(strength * step.entropy.mean(), len(step.images))


def test_draws_are_each_streams_own(net, groups, monkeypatch):
    monkeypatch.setattr(registry, "_registry", registry.methods())
    holdfast.register("toy-noisy")(Noisy)
    fleet = holdfast.Fleet(net, Noisy())
    adapters = {name: holdfast.adapt(net, Noisy()) for name in ("one", "two")}
    for number, images in enumerate(stream(("some", "all", "some"))):
        given = {"one": images, "two": images[:6]} if number else {"one": images}
        fleet.step(given)
        for name, each in given.items():
            adapters[name](each)
            assert fleet.last(name).losses["entropy"] == pytest.approx(
                adapters[name].last.losses["entropy"], rel=1e-3
            )
    assert groups == [2, 2]
    assert_alike(fleet, adapters, 1e-4)


def test_a_step_is_each_streams_own_gradient(groups):
    """Beside torch's own way to many gradients: vmap of grad."""
    net, rate = toy_net(dtype=torch.float64), 0.1
    fleet = holdfast.Fleet(net, f"tent(lr={rate},momentum=0)")
    images = torch.stack(stream(("some", "all", "none"), torch.float64))
    fleet.step({str(number): each for number, each in enumerate(images)})
    trained = {name: w.detach() for name, w in net.named_parameters() if "norm" in name}

    by_batch = toy_net(dtype=torch.float64)
    for layer in (by_batch.norm1, by_batch.norm2):
        layer.track_running_stats = False
        for buffer in BUFFERS:
            setattr(layer, buffer, None)
    by_batch.eval()
    gradients = vmap(grad(partial(loss_of, by_batch)), in_dims=(None, 0))(trained, images)
    assert groups == [3]
    for number in range(3):
        fleet.health(str(number))
        now = dict(fleet._network.model.named_parameters())
        for name, weight in trained.items():
            expected = weight - rate * gradients[name][number]
            torch.testing.assert_close(now[name].detach(), expected, atol=1e-8, rtol=0)


BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


def loss_of(net, weights, images):
    p = functional_call(net, weights, (images,)).softmax(1)
    return -(p * p.log()).sum(1).mean()


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        ("tent(select=all)", {}),
        ("sar", {}),
        ("bn(statistics=running)", {}),
        ("roid", {}),
        ("debias(balance=auto)", {}),
        ("tent+lame", {}),
        ("tent+consistency", {}),
        ("tent", {"compile": True}),
    ],
)
def test_what_cannot_go_together_goes_one_after_the_other(net, groups, spec, options):
    fleet = holdfast.Fleet(net, spec, source=toy_source(net, 16), **options)
    assert not fleet._network.groups
    if not options:
        (images,) = stream(("some",))
        found = fleet.step({"one": images, "two": images[:7]})
        adapter = holdfast.adapt(net, spec, source=toy_source(net, 16))
        assert torch.equal(found["two"], adapter(images[:7])) and not groups


@pytest.mark.parametrize("spec", ["tent(lr=0.005)", "bn(prior=16)"])
def test_layers_that_run_twice_and_those_without_scales(spec, groups):
    net = varied_net()
    fleet = holdfast.Fleet(net, spec)
    adapters = {name: holdfast.adapt(net, spec) for name in ("one", "two")}
    for images in stream(("some", "all", "some"), torch.float64):
        given = {"one": images, "two": images[3:]}
        for name, logits in fleet.step(given).items():
            expected = adapters[name](given[name])
            torch.testing.assert_close(logits, expected, atol=1e-8, rtol=0)
    assert groups == [2, 2, 2]
    assert_alike(fleet, adapters, 1e-8)


class Gated(nn.BatchNorm2d):
    """Does more than batch norm."""

    def forward(self, x):
        return super().forward(x).sigmoid()


@pytest.mark.parametrize("norm", [group_norm, Gated])
def test_other_norm_layers_go_one_after_the_other(norm, groups):
    net = toy_net(norm) if norm is group_norm else toy_net()
    if norm is Gated:
        net.norm1.__class__ = Gated
    fleet, adapter = holdfast.Fleet(net, "tent"), holdfast.adapt(net, "tent")
    (images,) = stream(("some",))
    found = fleet.step({"one": images, "two": images[:7]})
    assert torch.equal(found["one"], adapter(images)) and not groups


def test_images_of_other_shapes_and_single_ones_go_by_themselves(net, groups):
    fleet = holdfast.Fleet(net, "tent")
    (images,) = stream(("some",))
    wide = nn.functional.interpolate(images, (8, 12))
    given = {"a": images, "b": wide, "c": images[:4], "d": wide[:3], "e": images[:1]}
    refused = {}
    found = fleet.step(given, refused)
    assert groups == [2, 2]
    assert list(found) == list("abcd") and "A batch of one image" in str(refused["e"])
    for name in "abcd":
        expected = holdfast.adapt(net, "tent")(given[name])
        torch.testing.assert_close(found[name], expected, atol=1e-4, rtol=0)


def test_windows_are_each_streams_own(net, groups):
    fleet = holdfast.Fleet(net, "eta(redundancy=2)", window=6)
    adapters = {name: holdfast.adapt(net, "eta(redundancy=2)", window=6) for name in ("one", "two")}
    for number, images in enumerate(stream(("some", "all", "some", "some"))):
        given = {"one": images[:2], "two": images[4 : 5 + number]}
        found = fleet.step(given)
        for name, each in given.items():
            torch.testing.assert_close(found[name], adapters[name](each), atol=1e-4, rtol=0)
    assert len(groups) == 3  # at first, one image alone has no window yet
    assert_alike(fleet, adapters, 1e-4)


def test_a_stream_that_overflows_changes_nothing(net, groups):
    fleet = holdfast.Fleet(net, "tent", input_range=None)
    adapters = {name: holdfast.adapt(net, "tent") for name in ("wild", "calm")}
    first, second = stream(("some", "all"))
    fleet.step({"wild": first, "calm": first})
    with pytest.warns(UserWarning, match="wild: A batch was not adapted to: .*NaN or Inf"):
        fleet.step({"wild": 1e38 * second, "calm": second})
    assert groups == [2, 2] and fleet.last("calm").stepped
    assert not fleet.last("wild").stepped and "NaN or Inf" in fleet.last("wild").refused
    adapters["wild"](first)
    adapters["calm"](first)
    adapters["calm"](second)
    assert_alike(fleet, adapters, 1e-4)


@pytest.mark.parametrize("where", [torch.no_grad, torch.inference_mode])
def test_it_learns_where_gradients_are_switched_off(net, where):
    fleet, adapter = holdfast.Fleet(net, "tent"), holdfast.adapt(net, "tent")
    first, second = stream(("some", "all"))
    with where():
        fleet.step({"one": first, "two": first})
        found = fleet.step({"one": second, "two": second})
    adapter(first)
    torch.testing.assert_close(found["two"], adapter(second), atol=1e-4, rtol=0)


def test_a_network_that_folds_images_otherwise_is_served_in_turn(net):
    class Twice(nn.Module):
        """Its norm layer sees every image twice."""

        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
            self.fc = nn.Linear(8, 5)

        def forward(self, images):
            seen = self.norm(self.conv(torch.cat([images, images.flip(3)])))
            one, two = seen.mean((2, 3)).chunk(2)
            return self.fc(one + two)

    folding = Twice().eval()
    fleet, adapter = holdfast.Fleet(folding, "tent"), holdfast.adapt(folding, "tent")
    (images,) = stream(("some",))
    found = fleet.step({"one": images, "two": images[:5]})
    assert torch.equal(found["one"], adapter(images))


class Viewing(nn.Module):
    """Cannot take channels_last, which its adapter finds out at the first batch."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 36, 5)

    def forward(self, images):
        return self.fc(self.norm(self.conv(images)).view(len(images), -1))


def test_a_network_that_changes_its_memory_format_on_the_way(groups):
    torch.manual_seed(0)
    viewing = Viewing().eval()
    fleet = holdfast.Fleet(viewing, "tent(lr=0.1)")
    adapters = {name: holdfast.adapt(viewing, "tent(lr=0.1)") for name in ("one", "two")}
    for images in stream(("some", "all", "some")):
        given = {"one": images, "two": images.flip(0)}
        found = fleet.step(given)
        for name, each in given.items():
            torch.testing.assert_close(found[name], adapters[name](each), atol=1e-4, rtol=0)
    assert fleet._network.network.memory_format is torch.contiguous_format and groups == [2, 2, 2]
    assert_alike(fleet, adapters, 1e-4)
