"""What balance=auto promises of its pace and its forces, whatever network and host."""

from functools import partial

import pytest
import torch
from toys import KINDS, source_batches, state_of, stream, toy_net, toy_source

import holdfast
from holdfast.explain.card import card

KAPPA = 0.006


def moved_by(adapter, images):
    """How far one batch moves weights, as a share of their length."""
    state = adapter._state
    before = torch.cat([p.detach().flatten().clone() for p in state.slots.task.parameters.values()])
    adapter(images)
    now = torch.cat([p.detach().flatten() for p in state.slots.task.parameters.values()])
    return float((now - before).norm() / before.norm())


@pytest.mark.parametrize("factor", [0.25, 16])
def test_the_pace_does_not_depend_on_the_learning_rate(factor):
    """From the second batch on, when it is known what a force leads to."""
    net = toy_net(dtype=torch.float64)
    batches = stream(("all",) * 6, torch.float64)
    moved = []
    for lr in (1e-5, 1e-5 * factor):
        adapter = holdfast.adapt(
            net, f"debias(lr={lr},momentum=0,balance=auto)", source=toy_source(net)
        )
        moved.append([moved_by(adapter, images) for images in batches])
    one, other = moved
    assert one[1:] == pytest.approx(other[1:], rel=0.05)
    assert one[0] == pytest.approx(other[0] / factor, rel=0.01)


def test_no_step_of_the_terms_exceeds_its_share_of_the_weights():
    net = toy_net(dtype=torch.float64)
    spec = "debias(lr=0.01,momentum=0,balance=auto,lambda_src=0)"
    adapter = holdfast.adapt(net, spec, source=toy_source(net))
    batches = stream(("all",) * 8, torch.float64)
    moved = [moved_by(adapter, images) for images in batches]
    # The average over batches is not this batch's own, and there is the way back to the source.
    assert max(moved[1:]) < 1.5 * KAPPA


def test_fewer_reliable_images_slow_it_down():
    """Twice the images, of which half are too dark to count: half the pace."""
    net = toy_net(dtype=torch.float64)
    bright = stream(("all",), torch.float64)[0]
    weights = []
    for images in (bright, torch.cat([bright, 0.02 * bright])):
        adapter = holdfast.adapt(net, "debias(lr=0.001,balance=auto)", source=toy_source(net))
        rule = next(t for t in adapter._slots.terms if t.label == "balance")
        adapter(images)
        pace = {t.label: float(t.weight) for t in rule.own}["src"]
        weights.append(pace / float(rule.entropy))
        share = adapter.last.reliable / len(images)
        assert pace == pytest.approx(share * float(rule.entropy) / 3 * rule.width / 2)
    assert weights[1] < 0.6 * weights[0]


def test_a_rate_of_0_moves_nothing_towards_prototypes():
    net = toy_net()
    adapter = holdfast.adapt(net, "debias(lr=0,balance=auto)", source=toy_source(net))
    before = {n: p.clone() for n, p in adapter._state.slots.task.parameters.items()}
    for images in stream(("all", "some")):
        adapter(images)
    for name, weight in adapter._state.slots.task.parameters.items():
        assert torch.equal(weight, before[name])


def test_a_batch_without_a_reliable_image_leaves_the_rule_alone():
    net = toy_net()
    adapter = holdfast.adapt(net, "tent(lr=0.001)+debias(balance=auto)", source=toy_source(net))
    for images in stream(("all", "some")):
        adapter(images)
    before = state_of(adapter)
    adapter(stream(("none",), seed=9)[0])
    after = state_of(adapter)
    assert adapter.last.reliable == 0 and adapter.last.stepped
    for name in before:
        if name.startswith("terms/"):
            assert torch.equal(before[name], after[name]), name


def test_it_takes_one_forward_and_one_backward():
    net = toy_net()
    adapter = holdfast.adapt(net, "tent+debias(balance=auto)", source=toy_source(net))
    for images in stream(KINDS):
        adapter(images)
        assert (adapter.last.forwards, adapter.last.backwards) == (1, 1)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_goes_the_same_way(precision):
    """Forces on features of half precision are taken through the head's rows."""
    net = toy_net()
    found = []
    for given in (None, precision):
        adapter = holdfast.adapt(
            net, "tent(lr=0.001)+debias(balance=auto)", source=toy_source(net), precision=given
        )
        adapter(stream(("all",))[0])
        found.append({n: float(adapter._state.tensors()[f"terms/balance/{n}"]) for n in FORCES})
    assert found[1] == pytest.approx(found[0], rel=0.05)


FORCES = ("entropy", "host", "ema")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_forces_of_a_compiled_network_are_the_same(backend, monkeypatch):
    """In the second, features and logits come out of one graph, and autograd sees no head."""
    compiled = partial(torch.compile, backend=backend)
    monkeypatch.setattr(torch, "compile", compiled)
    net = toy_net(dtype=torch.float64)
    found = []
    for given in (False, True):
        adapter = holdfast.adapt(
            net, "tent(lr=0.001)+debias(balance=auto)", source=toy_source(net), compile=given
        )
        adapter(stream(("all",), torch.float64)[0])
        found.append({n: float(adapter._state.tensors()[f"terms/balance/{n}"]) for n in FORCES})
    assert found[1] == pytest.approx(found[0], rel=1e-9)


def test_a_head_that_is_a_convolution_gives_the_same():
    """There features are not the tensor that the head was given."""

    class Convolved(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.body, fc = net, net.fc
            self.head = torch.nn.Conv2d(fc.in_features, fc.out_features, 1)
            self.head.weight = torch.nn.Parameter(fc.weight.detach()[:, :, None, None].clone())
            self.head.bias = torch.nn.Parameter(fc.bias.detach().clone())
            self.body.fc = torch.nn.Identity()

        def forward(self, images):
            return self.head(self.body(images)[:, :, None, None]).flatten(1)

    nets = {"fc": toy_net(dtype=torch.float64), "head": Convolved(toy_net(dtype=torch.float64))}
    adapters = [
        holdfast.adapt(
            net,
            "tent(lr=0.001)+debias(balance=auto)",
            source=holdfast.Source.from_loader(net, source_batches(torch.float64), head=head),
            head=head,
        )
        for head, net in nets.items()
    ]
    for images in stream(KINDS, torch.float64):
        one, other = (adapter(images) for adapter in adapters)
        assert torch.allclose(one, other, rtol=0, atol=1e-8)


def test_both_weights_0_is_the_host_alone_in_needs_and_memory_too():
    plain = holdfast.compose("tent+debias(balance=auto,lambda_ema=0,lambda_src=0)")
    assert plain.needs == ()
    assert holdfast.compose("tent+debias(balance=auto,lambda_src=0)").needs == ("prototypes",)
    assert holdfast.compose("tent+debias").plugins[0].balance == "fixed"


def test_the_card_says_what_has_no_effect_and_what_is_not_shown():
    text = str(card("eata+debias(balance=auto)"))
    words = " ".join(text.split())
    assert "lambda_ema, lambda_src (unless 0) and src_reduction have no effect" in words
    assert "a copy of what trains" in words
    assert "have no effect" not in str(card("eata+debias"))
