"""AETTA's reset rule against a plain restatement, on several hosts."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from drifting import staged_home_net
from follow import TOLERANCE, assert_none_some_all, follow
from plain import batch_norm
from plain_hosts import EATA, HOSTS, TENT, PlainHost
from toys import CLASSES, GAIN, assert_same_state, state_of, stream, toy_net, toy_source

import holdfast
from holdfast.engine.dropout import DropoutViews
from holdfast.parts import Draws, Network

LAYERS = 'layers="norm1|norm2",masks=fixed'


class PlainAetta:
    """A host, an estimate before each of its steps, and the rule after it."""

    def __init__(self, net, *, rate=0.4, views=10, below=20, drop=2, window=5, **host):
        self.host, self.rate, self.views = PlainHost(net, **host), rate, views
        self.below, self.drop, self.window = below, drop, window
        self.error, self.masks, self.list = None, 0, []
        self.resets = []

    def dropped(self, x):
        # Python's own whole numbers, so that nothing can overflow.
        kept = [
            ((i * 2654435761 + self.masks * 2654445111) % 2**32) / 2**32 >= self.rate
            for i in range(x.numel())
        ]
        self.masks += 1
        return x * torch.tensor(kept, dtype=x.dtype).reshape(x.shape) / (1 - self.rate)

    def view(self, images):
        """The toy net with a mask behind each of its norm layers, in front of ReLU."""
        w = self.host.toy.w
        x = F.conv2d(images, w["conv1.weight"], w["conv1.bias"], padding=1)
        x = self.dropped(batch_norm(x, w["norm1.weight"], w["norm1.bias"])).clamp_min(0)
        x = F.conv2d(x, w["conv2.weight"], w["conv2.bias"], stride=2, padding=1)
        x = self.dropped(batch_norm(x, w["norm2.weight"], w["norm2.bias"])).clamp_min(0)
        features = x.mean((2, 3)) * (GAIN * images.mean((1, 2, 3)))[:, None]
        return features @ w["fc.weight"].T + w["fc.bias"]

    @torch.no_grad()
    def estimate(self, images):
        labels = self.host.toy(images)[1].argmax(1)
        views = [self.view(images) for _ in range(self.views)]
        error = np.mean([(view.argmax(1) != labels).double().mean().item() for view in views])
        mean = torch.stack([torch.softmax(view.double(), 1).mean(0) for view in views]).mean(0)
        entropy = -sum(p * math.log(p + 1e-6) for p in mean.tolist())
        raised = min(max(error / (entropy / math.log(CLASSES)) ** 3, 0), 1 - 1 / CLASSES)
        before = error if self.error is None else self.error
        self.error = 0.6 * before + 0.4 * raised

    def step(self, images):
        self.estimate(images)
        logits, stepped = self.host(images)
        if stepped:
            self.list.append(100 * (1 - self.error))
            low = self.list[-1] < self.below
            half = self.window
            fell = len(self.list) >= 2 * half and np.mean(self.list[-half:]) + self.drop < np.mean(
                self.list[-2 * half : -half]
            )
            if low or fell:
                self.resets.append("low" if low else "fell")
                self.host.reset()
                self.list = []
        return logits


def followed(host, settings, dtype, **plain):
    made = []

    def restate(net):
        made.append(PlainAetta(net, **plain, **HOSTS[host]))
        return made[0].step, made[0].host.toy

    adapter, counts, _ = follow(f"{host}+aetta({LAYERS},{settings})", restate, dtype, moves=False)
    rule = adapter._slots.upkeep[-1]
    assert float(rule.error) == pytest.approx(made[0].error, abs=TOLERANCE[dtype])
    assert int(rule.calls) == made[0].masks
    assert int(rule.count) == len(made[0].list)
    return counts, made[0]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("host", HOSTS)
def test_it_resets_when_the_estimate_is_low(host, dtype):
    counts, plain = followed(host, "reset_below=55.5,drop=100", dtype, below=55.5, drop=100)
    if host != TENT:
        assert_none_some_all(counts)
    assert 0 < len(plain.resets) < len(counts) - 2  # now and then
    assert set(plain.resets) == {"low"}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("host", HOSTS)
def test_it_resets_when_the_estimate_fell(host, dtype):
    settings = "reset_below=0,window=2,drop=0.5,dropout=0.3,views=4"
    plain = {"below": 0, "window": 2, "drop": 0.5, "rate": 0.3, "views": 4}
    _, plain = followed(host, settings, dtype, **plain)
    assert set(plain.resets) == {"fell"}


def test_the_defaults_are_the_published_ones():
    _, plain = followed(TENT, "views=10", torch.float64)
    assert plain.resets == ["fell"]
    method = holdfast.compose("tent+aetta").for_classes(7).plugins[0]
    assert (method.dropout, method.views, method.reset_below) == (0.4, 10, 20)
    assert (method.drop, method.window, method.masks) == (2, 5, "random")
    for classes, rate in ((10, 0.4), (11, 0.3), (100, 0.3), (101, 0.2)):
        assert holdfast.compose("tent+aetta").for_classes(classes).plugins[0].dropout == rate
    for preset, rate in (("cifar100-c", 0.3), ("imagenet-c", 0.2)):
        assert holdfast.compose("tent+aetta", preset=preset).plugins[0].dropout == rate


def test_a_batch_without_a_step_is_estimated_and_leads_to_no_reset():
    """Of an estimate that would always lead to one."""
    net = toy_net()
    adapter = holdfast.adapt(
        net, f"{EATA}+aetta({LAYERS},reset_below=100,views=2)", source=toy_source(net)
    )
    first, none = stream(("some", "none"))
    rule = adapter._slots.upkeep[-1]
    adapter(none)
    assert not adapter.last.stepped and rule.seen and not rule.count
    adapter._state.write({"upkeep/0/count": torch.tensor(3)})
    adapter(none)
    assert int(rule.count) == 3
    adapter(first)
    assert adapter.last.stepped and not rule.count  # it was reset
    assert adapter.health.distance == 0


def test_a_reset_takes_all_back_but_the_average_behind_the_estimate():
    net = toy_net()
    adapter = holdfast.adapt(
        net, f"{EATA}+debias+aetta({LAYERS},reset_below=100)", source=toy_source(net)
    )
    fresh = state_of(adapter)
    for images in stream(("some", "all", "some")):
        adapter(images)
        assert adapter.last.stepped
    now = state_of(adapter)
    for name in fresh:
        if name.startswith(("model/", "optimizer/", "terms/")):
            assert torch.equal(now[name], fresh[name]), name
    assert float(now["upkeep/0/error"]) > 0 and bool(now["upkeep/0/seen"])


def test_masks_keep_their_share_and_come_from_the_adapters_own_randomness():
    """10 views of 16 images: 16·8·64 and 16·12·16 elements, each kept with probability 0.6."""
    net, shares = toy_net(), []
    adapter = holdfast.adapt(net, 'tent+aetta(layers="norm1|norm2",dropout=0.4)', seed=3)
    same = holdfast.adapt(net, 'tent+aetta(layers="norm1|norm2",dropout=0.4)', seed=3)

    views = adapter._slots.upkeep[0].views
    dropped = views._drop

    def watched(layer, inputs, output):
        found = dropped(layer, inputs, output)
        kept = found != 0
        shares.append(float(kept.double().mean()))
        torch.testing.assert_close(found[kept], output[kept] / 0.6)
        return found

    views._drop = watched
    for images in stream(("some", "all")):
        before = torch.get_rng_state()
        assert torch.equal(adapter(images), same(images))
        assert torch.equal(torch.get_rng_state(), before)
    assert float(adapter._slots.upkeep[0].error) == float(same._slots.upkeep[0].error)
    assert len(shares) == 2 * 10 * 2
    sizes = np.array([16 * 8 * 64, 16 * 12 * 16] * 20)
    z = (np.array(shares) - 0.6) / np.sqrt(0.6 * 0.4 / sizes)
    assert abs(z.mean()) < 4 / math.sqrt(len(z)) and 0.6 < z.std() < 1.4
    assert len(set(shares[::2])) > 15  # masks do not come again


def test_fixed_masks_go_on_counting_along_the_stream():
    net = toy_net(dtype=torch.float64)
    network = Network(net)
    views = DropoutViews(network, ["norm1", "norm2"], 0.8, 1, "fixed")
    images = network.prepare(stream(("some",), torch.float64)[0])
    labels = network(images)[1].argmax(1)
    draws = Draws(0, network.device)
    first, second = views(images, labels, draws, 0), views(images, labels, draws, 2)
    assert first.masks == second.masks == 2
    assert views(images, labels, draws, 0) == first
    assert second != first


def test_where_dropout_goes():
    staged, toy = staged_home_net(), toy_net()
    adapter = holdfast.adapt(staged, "tent+aetta")
    assert adapter._slots.upkeep[0].views.places == ["stage1", "stage2"]
    adapter(stream(("some",))[0])
    assert adapter.last.forwards == 11
    with pytest.raises(ValueError, match=r'ToyNet has no stages.*aetta\(layers="conv1\|norm1"\)'):
        holdfast.adapt(toy, "tent+aetta")
    with pytest.raises(ValueError, match=r"ToyNet has no layer 'nrom1'.*name some of conv1, norm1"):
        holdfast.adapt(toy, 'tent+aetta(layers="nrom1")')


def test_a_net_that_predicts_otherwise_than_it_learns_is_asked_once_more():
    """TTAC learns by the batch and predicts by running statistics."""
    net = toy_net()
    spec = f"ttac(threshold=0.5)+aetta({LAYERS},views=3)"
    adapter = holdfast.adapt(net, spec, source=toy_source(net))
    adapter(stream(("all",))[0])
    assert adapter.last.forwards == 2 + 4


def test_the_estimate_and_a_reset_are_told():
    net = toy_net()
    adapter = holdfast.adapt(net, f"tent+aetta({LAYERS},views=3,reset_below=100)")
    (images,) = stream(("all",))
    adapter(images)
    error = float(adapter._slots.upkeep[-1].error)
    assert adapter.last.reset and adapter.last.estimate == pytest.approx(100 * (1 - error))
    quiet = holdfast.adapt(net, "tent")
    quiet(images)
    assert not quiet.last.reset and quiet.last.estimate is None
    for spec in ("rdumb(redundancy=2,reset_every=2)", "tent+asr(start=1)"):
        adapter = holdfast.adapt(net, spec, source=toy_source(net))
        found = []
        for batch in stream(("all", "some")):
            adapter(batch)
            found.append(adapter.last.reset)
        assert found[1]


def test_views_make_no_graphs(monkeypatch):
    """What is compiled is compiled as often as without them."""

    def counted(spec):
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward

        torch._dynamo.reset()
        with monkeypatch.context() as patch:
            patch.setattr(torch, "compile", partial(torch.compile, backend=backend))
            adapter = holdfast.adapt(toy_net(), spec, compile=True)
        for images in stream(("all", "some", "all")):
            adapter(images)
        return len(graphs)

    assert counted(f"tent+aetta({LAYERS},views=3,reset_below=0)") == counted("tent") > 0


def test_of_a_batch_that_is_not_learnt_from_nothing_more_is_recorded():
    """NOTE predicts a batch by a forward of its own, which records it."""
    net, spec = toy_net(), "note(statistics=batch,iabn=false,every=64)"
    alone = holdfast.adapt(net, spec)
    beside = holdfast.adapt(net, f"{spec}+aetta({LAYERS},views=2,reset_below=0)")
    for images in stream(("all", "some")):
        assert torch.equal(alone(images), beside(images))
    known = {n: t for n, t in state_of(alone).items() if n.startswith("statistics/")}
    assert known
    assert_same_state({n: t for n, t in state_of(beside).items() if n in known}, known)


@pytest.mark.parametrize("spec", ["aetta", "aetta+debias"])
def test_alone_it_is_an_error_that_says_what_to_write(spec):
    with pytest.raises(ValueError, match=r"aetta has nothing to act on alone.*tent\+aetta"):
        holdfast.compose(spec)


@pytest.mark.usefixtures("toy_methods")
def test_on_a_host_of_which_nothing_stays_it_is_an_error():
    with pytest.raises(ValueError, match=r"bn never takes a step, so aetta.*: put it on.*tent\+a"):
        holdfast.compose("bn+aetta")
    with pytest.raises(ValueError, match=r"toy-memo answers each image by itself.*tent\+aetta"):
        holdfast.compose("toy-memo+aetta")
