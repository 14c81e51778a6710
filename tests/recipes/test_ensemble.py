import pytest
import torch
from follow import TOLERANCE, close, follow
from plain import PlainAdam, PlainSgd, PlainToy, entropy
from running import run
from toys import KINDS, state_of, stream, toy_net, toy_source

import holdfast


def restate(momentum, optimizer):
    def build(net):
        toy = PlainToy(net)
        start = {name: toy.w[name].detach().clone() for name in toy.trained}
        taken = optimizer(toy)

        def step(images):
            logits = toy(images)[1]
            taken.step(entropy(logits).mean())
            with torch.no_grad():
                for name in toy.trained:
                    toy.w[name].copy_(momentum * toy.w[name] + (1 - momentum) * start[name])
            return logits

        return step, toy

    return build


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("host", "optimizer"),
    [
        ("tent(lr=0.002,nesterov=true)", lambda toy: PlainSgd(toy, 0.002, nesterov=True)),
        ("tent(lr=0.002,optimizer=adam)", lambda toy: PlainAdam(toy, 0.002)),
    ],
)
def test_weights_go_back_a_little_after_each_step_and_the_optimiser_goes_on(dtype, host, optimizer):
    follow(f"{host}+ensemble(source_momentum=0.9)", restate(0.9, optimizer), dtype)


def moved(now, start):
    return max(float((now[name].detach() - start[name]).abs().max()) for name in start)


@pytest.mark.parametrize(
    "spec",
    [
        "cotta(augment_below=0,lr=0.1)+ensemble(source_momentum=0)",
        # Several steps in one batch, after each of which the teacher follows.
        "rotta(capacity=12,every=4,lr=0.1)+ensemble(source_momentum=0)",
        "petta(capacity=12,lr=0.1)+ensemble(source_momentum=0)",
        "rmt(warmup_samples=0,lr=0.1)+ensemble(source_momentum=0)",
        "rmt(warmup_samples=0,lr=0.1)+debias+ensemble(source_momentum=0)",
    ],
)
def test_a_teacher_follows_weights_that_have_settled(spec):
    """Where nothing of a step is kept, there is nothing for it to follow."""
    net = toy_net()
    own = {f"teacher/{name}": p.detach() for name, p in net.named_parameters()}
    for given, stays in ((spec, True), (spec.replace("momentum=0)", "momentum=0.99)"), False)):
        adapter = holdfast.adapt(net, given, source=toy_source(net))
        for images in stream(("some", "all", "some")):
            adapter(images)
            assert adapter.last.stepped
        state = state_of(adapter)
        start = {name: weight for name, weight in own.items() if name in state}
        assert start and (moved(state, start) == 0) == stays


def test_an_answer_after_the_update_is_that_of_weights_that_have_settled():
    net = toy_net()
    source = toy_source(net)
    pulled = holdfast.adapt(net, "ttac(lr=0.1)+ensemble(source_momentum=0)", source=source)
    still = holdfast.adapt(net, "ttac(lr=0)", source=source)
    assert pulled._slots.prediction.after
    for images in stream(("some", "all", "some")):
        assert torch.equal(pulled(images), still(images))


def test_steps_before_the_stream_are_not_pulled():
    net = toy_net()
    adapter = holdfast.adapt(
        net,
        "rmt(warmup_samples=28,lr=0.001)+ensemble(source_momentum=0)",
        source=toy_source(net),
    )
    start = {name: weight.detach() for name, weight in net.named_parameters()}
    assert moved(dict(adapter.model.named_parameters()), start) > 1e-5
    adapter(stream(("all",))[0])
    assert moved(dict(adapter.model.named_parameters()), start) == 0


def test_without_a_step_nothing_is_pulled():
    net = toy_net()
    spec = "eta(redundancy=2,lr=0.01)+ensemble(source_momentum=0.5)"
    adapter = holdfast.adapt(net, spec)
    run(adapter, stream(("some", "all")))
    before = {name: p.detach().clone() for name, p in adapter.model.named_parameters()}
    adapter(stream(("none",))[0])
    assert not adapter.last.stepped
    assert all(torch.equal(p, before[name]) for name, p in adapter.model.named_parameters())


@pytest.mark.parametrize("order", ["debias+ensemble", "ensemble+debias"])
def test_the_order_of_writing_does_not_matter(order):
    net = toy_net(dtype=torch.float64)
    source = toy_source(net)
    one, other = (
        holdfast.adapt(net, f"cotta(augment=flip)+{plugins}", source=source)
        for plugins in (order, "debias+ensemble")
    )
    for images in stream(KINDS, torch.float64):
        close(one(images), other(images), torch.float64, order)


def test_all_that_trains_is_pulled_whatever_it_is():
    net = toy_net()
    adapter = holdfast.adapt(net, "tent(select=all,lr=0.1)+ensemble(source_momentum=0)")
    run(adapter, stream(("some", "all")))
    start = {name: weight.detach() for name, weight in net.named_parameters()}
    assert moved(dict(adapter.model.named_parameters()), start) == 0


def test_it_changes_no_prediction_of_a_fresh_adapter_and_keeps_probabilities():
    net = toy_net()
    adapter = holdfast.adapt(net, "tent+ensemble")
    images = stream(("some",))[0]
    assert torch.equal(adapter(images), holdfast.adapt(net, "tent")(images))
    assert adapter.last.uncorrected is None
    assert holdfast.compose("tent+ensemble").plugins[0].source_momentum == 0.99


@pytest.mark.parametrize("spec", ["tent(select=all,lr=0.1)+ensemble(source_momentum=0)", "cmf"])
def test_weights_that_are_laid_out_anew_are_still_pulled(spec):
    """A model that fails in one memory format is tried in another."""
    net = toy_net()
    host = spec if "+" in spec else "cmf(select=all,lr=0.001,model_momentum=0,noise=0,augment=flip)"
    adapter = holdfast.adapt(net, host)
    first, *rest = stream(("some", "all", "some"))
    adapter(first)
    adapter.network._use(torch.contiguous_format)
    run(adapter, rest)
    start = {name: weight.detach() for name, weight in net.named_parameters()}
    assert moved(dict(adapter.model.named_parameters()), start) < 1e-6


@pytest.mark.parametrize("host", ["note(every=4,lr=0.1)", "sotta(every=4,lr=0.1,threshold=0)"])
def test_steps_from_a_memory_are_pulled(host):
    net = toy_net()
    source = toy_source(net)
    pulled = holdfast.adapt(net, f"{host}+ensemble(source_momentum=0)", source=source)
    for images in stream(("some", "all")):
        pulled(images)
        assert pulled.last.stepped
    own = dict(net.named_parameters())
    for name, weight in pulled.model.named_parameters():
        assert torch.equal(weight, own[name])
