import math

import pytest
import torch
from follow import TOLERANCE, assert_none_some_all, follow
from plain import PlainSgd, PlainToy, entropy, limit

import holdfast


def restate(*, lr, redundancy, every, factor=0.355):
    """ETA, thrown away and begun anew after every so many batches."""

    def build(net):
        toy = PlainToy(net)
        source = {name: toy.w[name].detach().clone() for name in toy.trained}
        state = {"batches": 0, "q": None, "optimizer": PlainSgd(toy, lr)}

        def step(images):
            _, logits = toy(images)
            h, p, q = entropy(logits), torch.softmax(logits, 1).detach(), state["q"]
            keep = h < limit(factor, logits)
            if q is not None:
                keep = keep & (((p @ q) / (p.norm(dim=1) * q.norm())).abs() < redundancy)
            if keep.any():
                mean = p[keep].mean(0)
                state["q"] = mean if q is None else 0.9 * q + 0.1 * mean
                weight = (limit(factor, logits) - h[keep].detach()).exp()
                state["optimizer"].step((weight * h[keep]).sum() / keep.sum())
            state["batches"] += 1
            if state["batches"] % every == 0:
                with torch.no_grad():
                    for name, value in source.items():
                        toy.w[name].copy_(value)
                state.update(q=None, optimizer=PlainSgd(toy, lr))
            return logits

        return step, toy

    return build


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rdumb_resets(dtype):
    """Resets after batches 5 and 10 of 12, so that weights have moved again at the end."""
    spec = "rdumb(lr=0.003,redundancy=0.7,reset_every=5)"
    adapter, counts, _ = follow(spec, restate(lr=0.003, redundancy=0.7, every=5), dtype)
    assert_none_some_all(counts)
    assert int(adapter._state.tensors()["upkeep/0/batches"]) == 2


def test_default_limit_is_half_ln_1000_minus_one():
    resolved = holdfast.compose("rdumb").host
    assert resolved.entropy_factor * math.log(1000) == pytest.approx(
        math.log(1000) / 2 - 1, abs=0.01
    )
    assert resolved.reset_every == 1000
