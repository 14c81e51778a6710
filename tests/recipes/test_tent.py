import pytest
import torch
from follow import TOLERANCE, follow
from plain import NORM_AFFINE, PlainAdam, PlainSgd, PlainToy, entropy

ALL = [
    f"{layer}.{kind}"
    for layer in ("conv1", "norm1", "conv2", "norm2", "fc")
    for kind in ("weight", "bias")
]


def restate(make_optimizer, trained=NORM_AFFINE):
    def build(net):
        toy = PlainToy(net, trained)
        optimizer = make_optimizer(toy)

        def step(images):
            _, logits = toy(images)
            optimizer.step(entropy(logits).mean())
            return logits

        return step, toy

    return build


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_tent_is_entropy_minimisation(dtype):
    follow("tent(lr=0.005)", restate(lambda toy: PlainSgd(toy, 0.005)), dtype)


def test_defaults_are_the_papers():
    follow("tent", restate(lambda toy: PlainSgd(toy, 1e-4)), torch.float64)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_optimizers(dtype):
    nesterov = restate(lambda toy: PlainSgd(toy, 0.003, 0.8, nesterov=True))
    follow("tent(lr=0.003,momentum=0.8,nesterov=true)", nesterov, dtype)
    # Adam divides by the root of a squared gradient, which float32 knows only roughly.
    if dtype == torch.float64:
        adam = restate(lambda toy: PlainAdam(toy, 0.003, 0.7))
        follow("tent(lr=0.003,optimizer=adam,momentum=0.7)", adam, dtype)


def test_plain_sgd_without_momentum():
    follow("tent(lr=0.01,momentum=0)", restate(lambda toy: PlainSgd(toy, 0.01, 0)), torch.float64)


@pytest.mark.parametrize(("select", "trained"), [("all", ALL), ("body", ALL[:-2])])
def test_select(select, trained):
    build = restate(lambda toy: PlainSgd(toy, 0.002), tuple(trained))
    adapter, *_ = follow(
        f"tent(lr=0.002,select={select})", build, torch.float64, trained=trained, moves=False
    )
    assert [n for n, p in adapter.model.named_parameters() if p.requires_grad] == trained
