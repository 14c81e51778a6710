"""steady beside a plain restatement: statistics, gradients, learning, exports."""

import copy

import pytest
import torch
from follow import TOLERANCE, close
from plain import entropy
from plain_steady import NORMS, Plain
from steady_toys import batches, source_of, varied_net
from torch import nn
from toys import stream, toy_net

import holdfast
from holdfast.engine.mixed import Gated

# The toy nets know nothing of the classes of these images.
pytestmark = pytest.mark.filterwarnings("ignore:The source's labels")


NETS = {"toy": toy_net, "varied": varied_net}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("split", [True, False])
def test_learning_under_the_rule_is_as_restated(kind, dtype, split):
    net = NETS[kind](dtype=dtype)
    source = source_of(net)
    spec = f"tent(lr=0.005,momentum=0)+steady(split={str(split).lower()})"
    adapter, plain = holdfast.adapt(net, spec, source=source), Plain(net, source, split=split)
    trained = [n for n, _ in adapter.model.named_parameters() if n.startswith("norm")]
    alphas, sizes = [], set()
    for number, images in enumerate(batches(dtype)):
        got, expected = adapter(images), plain(images)
        close(got, expected, dtype, f"logits of batch {number}")
        weights = [plain.net.get_parameter(name) for name in trained]
        gradients = torch.autograd.grad(entropy(expected).mean(), weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight -= 0.005 * gradient
        for name, weight in zip(trained, weights, strict=True):
            close(adapter.model.get_parameter(name), weight, dtype, f"{name} after batch {number}")
        for name, uses in plain.seen.items():
            parts = [part for use in uses for part in use]
            alpha = sum(share * a for share, a, _ in parts) / len(uses)
            ratio = sum(share * r for share, _, r in parts) / len(uses)
            assert adapter.last.alpha[name] == pytest.approx(alpha, abs=1e-3)
            assert adapter.last.drift[name] == pytest.approx(ratio, rel=1e-3)
        groups = tuple(len(group) for group in plain.groups) if len(plain.groups) > 1 else ()
        assert adapter.last.split == groups
        alphas += list(adapter.last.alpha.values())
        sizes.add(len(groups))
    assert min(alphas) == 0 and max(alphas) > 0.5
    assert sizes == ({0, 2} if split else {0})
    start = dict(net.named_parameters())
    assert all((plain.net.get_parameter(n) - start[n]).abs().max() > 1e-4 for n in trained)


def test_gradients_of_the_fused_form():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    for shape in ((5, 3, 2, 2), (6, 3), (4, 3, 5)):
        axes = [d for d in range(len(shape)) if d != 1]
        own_mean, own_var, share = draw(3), draw(3) ** 2 + 0.3, torch.tensor(0.4).double()

        def fused(x, scale, shift, axes=axes, mu=own_mean, var=own_var, a=share):
            v, m = torch.var_mean(x.detach(), axes, correction=0)
            # What the share of the batch is a function of, for numerical gradients.
            return Gated.apply(x, scale, shift, mu + a * (m - mu), var + a * (v - var), m, a, 1e-5)

        given = [t.requires_grad_() for t in (draw(*shape), draw(3), draw(3))]
        assert torch.autograd.gradcheck(fused, given)


def test_where_nothing_drifts_it_is_the_source_model_bit_for_bit():
    net = toy_net()
    calm = batches(torch.float32)[:3]
    adapter = holdfast.adapt(net, "tent(lr=0.1)+steady", source=source_of(net))
    for images in calm:
        got = adapter(images)
        assert set(adapter.last.alpha.values()) == {0}
        assert 0 < max(adapter.last.drift.values()) < 1
        torch.testing.assert_close(got, net(images).detach(), rtol=0, atol=1e-5)
    frozen = adapter.frozen().state_dict()
    assert frozen.keys() == net.state_dict().keys()
    assert all(torch.equal(frozen[name], value) for name, value in net.state_dict().items())


def test_what_is_exported_is_the_recent_average_of_what_was_used():
    net = toy_net(dtype=torch.float64)
    source = source_of(net)
    adapter = holdfast.adapt(net, "tent(lr=0.05)+steady", source=source)
    kinds = ("running_mean", "running_var", "weight", "bias")
    average = {n: [torch.zeros_like(net.get_submodule(n).bias)] * 4 for n in ("norm1", "norm2")}
    gathered = 0.0
    for images in batches(torch.float64):
        plain, inputs = Plain(net, source), {}
        plain.net.load_state_dict({**net.state_dict(), **dict(adapter.model.named_parameters())})
        for name in average:
            layer = plain.net.get_submodule(name)
            layer.register_forward_pre_hook(
                lambda _, x, n=name, into=inputs: into.update({n: x[0]})
            )
        with torch.no_grad():
            plain(images)
        adapter(images)
        share = len(images) / (len(images) + 16)
        gathered = (1 - share) * gathered + share
        for name, before in average.items():
            layer, first = plain.net.get_submodule(name), net.get_submodule(name)
            used = [torch.zeros_like(first.bias)] * 4
            for group, (part, alpha, _) in zip(plain.groups, plain.seen[name][0], strict=True):
                rows = inputs[name][group].transpose(0, 1).flatten(1)
                ends = rows.mean(1), rows.var(1, correction=0), layer.weight, layer.bias
                used = [
                    total + part * alpha * (end - getattr(first, kind))
                    for total, end, kind in zip(used, ends, kinds, strict=True)
                ]
            average[name] = [
                (1 - share) * old + share * new.detach()
                for old, new in zip(before, used, strict=True)
            ]
    frozen = adapter.frozen()
    for name, moved in average.items():
        for kind, total in zip(kinds, moved, strict=True):
            expected = getattr(net.get_submodule(name), kind) + total / gathered
            got = getattr(frozen.get_submodule(name), kind)
            torch.testing.assert_close(got.detach(), expected.detach(), rtol=1e-8, atol=1e-10)
    assert (frozen.norm1.running_mean - net.norm1.running_mean).abs().max() > 1e-3


@pytest.mark.parametrize("kind", NETS)
def test_an_export_with_the_rule_stands_by_itself(kind, tmp_path):
    net = NETS[kind](dtype=torch.float32)
    adapter = holdfast.adapt(net, "tent(lr=0.05)+steady", source=source_of(net))
    every = [
        images.contiguous(memory_format=torch.channels_last) for images in batches(torch.float32)
    ]
    for images in every:
        adapter(images)
    expected = [adapter.predict(images) for images in every]
    exported = adapter.frozen(statistics="batch")
    torch.save(exported, tmp_path / "module")
    adapter.reset()
    for module in (
        exported,
        torch.load(tmp_path / "module", weights_only=False),
        copy.deepcopy(exported),
    ):
        for images, logits in zip(every, expected, strict=True):
            assert torch.equal(module(images), logits)
    assert not any(isinstance(layer, NORMS) for layer in exported.modules())
    # What the adapter goes on with is its own.
    assert not torch.equal(adapter.predict(every[3]), expected[3])


def test_a_forward_that_failed_leaves_nothing_behind():
    net = varied_net(torch.float32)
    adapter, other = (holdfast.adapt(net, "tent+steady", source=source_of(net)) for _ in range(2))
    *_, images = batches(torch.float32)
    with adapter.model.norm3.register_forward_pre_hook(lambda *_: 1 / 0):
        for call in (adapter.predict, adapter):
            with pytest.raises(ZeroDivisionError):
                call(images)
    assert adapter.last.alpha == {}
    assert torch.equal(adapter.predict(images), other.predict(images))
    assert torch.equal(adapter(images), other(images))


def test_fisher_information_is_that_of_plain_batch_statistics():
    net = toy_net()
    with_rule, without = source_of(net), source_of(net)
    holdfast.adapt(net, "eata+steady", source=with_rule)
    holdfast.adapt(net, "eata", source=without)
    frozen, of_frozen = toy_net().requires_grad_(False), source_of(net)
    holdfast.adapt(frozen, "eata+steady", source=of_frozen)
    names = [name for name in without.tensors if name.startswith("fisher/")]
    assert len(names) == 4
    for name in names:
        assert without.tensors[name].max() > 0
        assert torch.equal(with_rule.tensors[name], without.tensors[name])
        assert torch.equal(of_frozen.tensors[name], without.tensors[name])


def test_alone_it_is_on_bn():
    net = toy_net()
    alone, on_bn = (holdfast.adapt(net, s, source=source_of(net)) for s in ("steady", "bn+steady"))
    for images in batches(torch.float32):
        assert torch.equal(alone(images), on_bn(images))


@pytest.mark.parametrize(
    ("host", "advice"),
    [
        ("frozen", r"write eata\+steady, or bn\+steady"),
        ("rotta", r"write eata\+steady, or bn\+steady"),
        ("t3a", r"write t3a\(statistics=batch\)\+steady"),
        ("ttac(predict=after)", r"write ttac\(predict=before\)\+steady"),
        ("bn(alpha=0.1)", r"write bn\+steady\."),
        ("bn(prior=16)", r"write bn\+steady\."),
        ("bn(statistics=running)", r"write bn\+steady\."),
    ],
)
def test_hosts_that_do_not_go_by_the_batch_are_refused(host, advice):
    with pytest.raises(ValueError, match=advice):
        holdfast.compose(f"{host}+steady")
    holdfast.compose("t3a(statistics=batch)+steady")


def test_what_it_needs_is_said():
    with pytest.raises(ValueError, match=r"bn\+steady needs budgets.*Source\.from_loader"):
        holdfast.adapt(toy_net(), "bn+steady")
    net = toy_net(lambda channels: nn.BatchNorm2d(channels, track_running_stats=False))
    with pytest.raises(ValueError, match=r"'norm1' keeps none.*leave steady out"):
        holdfast.adapt(net, "bn+steady", source=source_of(net))


def test_a_layer_that_never_ran_on_the_source_is_left_alone():
    net = toy_net()
    net.spare = nn.BatchNorm2d(3)
    adapter = holdfast.adapt(net, "bn+steady", source=source_of(net))
    adapter(stream()[1])
    assert list(adapter.last.alpha) == ["norm1", "norm2"]
    for statistics in ("stream", "batch"):
        assert isinstance(adapter.frozen(statistics=statistics).spare, nn.BatchNorm2d)


def test_layers_under_two_names_are_replaced_in_both():
    net = toy_net()
    net.alias = net.norm2
    adapter = holdfast.adapt(net, "bn+steady", source=source_of(net))
    frozen = adapter.frozen(statistics="batch")
    assert frozen.alias is frozen.norm2 and not isinstance(frozen.alias, nn.BatchNorm2d)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_has_drift_in_full(precision):
    net = toy_net()
    half, full = (
        holdfast.adapt(net, "tent+steady", source=source_of(net), precision=wish)
        for wish in (precision, None)
    )
    for images in batches(torch.float32):
        torch.testing.assert_close(half(images), full(images), rtol=0.1, atol=0.3)
        for name, alpha in full.last.alpha.items():
            assert half.last.alpha[name] == pytest.approx(alpha, abs=0.05)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_compiled():
    net = toy_net()
    compiled, plain = (
        holdfast.adapt(net, "tent+steady", source=source_of(net), compile=wish)
        for wish in (True, False)
    )
    for images in batches(torch.float32):
        torch.testing.assert_close(compiled(images), plain(images), rtol=1e-4, atol=1e-4)
        for name, alpha in plain.last.alpha.items():
            assert compiled.last.alpha[name] == pytest.approx(alpha, abs=1e-4)
        assert compiled.last.split == plain.last.split
