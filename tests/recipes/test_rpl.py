import pytest
import torch
from follow import TOLERANCE, follow
from plain import PlainAdam, PlainSgd, PlainToy
from plain_methods import PlainDebias
from toys import stream, toy_net

import holdfast


def restate(make_optimizer, q=0.8, debias=None):
    def build(net):
        toy = PlainToy(net)
        optimizer = make_optimizer(toy)
        plug = PlainDebias(net, **debias) if debias else None

        def step(images):
            features, logits = toy(images)
            p = torch.softmax(logits, 1)
            loss = sum((1 - p[i, p[i].argmax()] ** q) / q for i in range(len(p))) / len(p)
            if plug:
                loss = loss + plug(features, logits)
            optimizer.step(loss)
            return logits

        return step, toy

    return build


def sgd(lr, **settings):
    return lambda toy: PlainSgd(toy, lr, **{"nesterov": True, **settings})


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rpl(dtype):
    """Every image counts, also on batches without a reliable one."""
    adapter, _, spoke = follow("rpl(lr=0.005)", restate(sgd(0.005)), dtype)
    assert spoke == {"robust"}
    assert adapter.last.images == {"robust": 5}
    assert (adapter.last.forwards, adapter.last.backwards) == (1, 1)


def test_defaults_are_the_collections():
    follow("rpl", restate(sgd(5e-4)), torch.float64)


@pytest.mark.parametrize(
    ("settings", "optimizer"),
    [
        ("lr=0.002,nesterov=false", sgd(0.002, nesterov=False)),
        ("lr=0.002,momentum=0", sgd(0.002, momentum=0, nesterov=False)),
        ("lr=0.002,optimizer=adam", lambda toy: PlainAdam(toy, 0.002)),
    ],
)
def test_optimizers(settings, optimizer):
    follow(f"rpl({settings})", restate(optimizer), torch.float64)


@pytest.mark.parametrize("q", [0.1, 0.5, 1])
def test_q(q):
    follow(f"rpl(lr=0.002,q={q})", restate(sgd(0.002), q), torch.float64)


def test_a_tiny_q_is_cross_entropy_on_own_labels():
    def build(net):
        toy = PlainToy(net)
        optimizer = PlainSgd(toy, 0.002, nesterov=True)

        def step(images):
            _, logits = toy(images)
            optimizer.step(torch.nn.functional.cross_entropy(logits, logits.argmax(1)))
            return logits

        return step, toy

    follow("rpl(lr=0.002,q=1e-6)", build, torch.float32)


def test_the_loss_of_a_sure_image_is_zero_and_finite():
    """p rounds to 1 in float32."""
    net = toy_net()
    with torch.no_grad():
        net.fc.weight *= 1e3
    adapter = holdfast.adapt(net, "rpl")
    adapter(stream(("all",))[0])
    assert adapter.last.refused is None and 0 <= adapter.last.losses["robust"] < 1e-3


def test_with_debias():
    """debias keeps to its own reliable images, and RPL to all."""
    spec = "rpl(lr=0.0005)+debias(src_reduction=mean)"
    build = restate(sgd(5e-4), debias={"ema": 2, "src": 50, "divisor": 12})
    _, counts, spoke = follow(spec, build, torch.float64)
    assert spoke == {"robust", "ema", "src"}
    assert any(reliable == 0 for reliable, _ in counts)


@pytest.mark.parametrize("q", [0, 1.1, -1])
def test_bad_q(q):
    with pytest.raises(ValueError, match=r"rpl: q takes a number at least 1e-06 and at most 1"):
        holdfast.compose(f"rpl(q={q})")


def test_presets():
    for preset in (None, "imagenet-c", "cifar100-c"):
        host = holdfast.compose("rpl", preset=preset).host
        adam = preset == "cifar100-c"
        assert (host.optimizer, host.lr) == (("adam", 1e-3) if adam else ("sgd", 5e-4))
        assert (host.momentum, host.nesterov, host.select) == (0.9, not adam, "norm")
        assert host.q == 0.8
