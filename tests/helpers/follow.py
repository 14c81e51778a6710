"""Run an adapter beside a plain restatement and compare them batch by batch."""

import torch
from plain import NORM_AFFINE
from toys import KINDS, stream, toy_net, toy_source

import holdfast

TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-4}


def follow(
    spec,
    restate,
    dtype,
    *,
    kinds=KINDS,
    trained=NORM_AFFINE,
    moves=True,
    source_of=toy_source,
    **options,
):
    """`restate(net)` gives (step, toy): a function from a batch to its logits, and its weights.

    Returns the adapter, the (reliable, all) counts of each batch, and which terms ever spoke.
    """
    net = toy_net(dtype=dtype)
    adapter = holdfast.adapt(net, spec, source=source_of(net), **options)
    step, toy = restate(net)
    start = {name: toy.w[name].detach().clone() for name in trained}
    counts, spoke = [], set()
    for index, images in enumerate(stream(kinds, dtype, last=5)):
        got, expected = adapter(images), step(images)
        counts.append((adapter.last.reliable, len(images)))
        spoke |= adapter.last.losses.keys()
        close(got, expected, dtype, f"logits of batch {index}")
        weights = adapter.frozen().state_dict()
        for name in trained:
            close(weights[name], toy.w[name], dtype, f"{name} after batch {index}")
    if moves:
        assert all((toy.w[name] - start[name]).abs().max() > 1e-4 for name in trained)
    return adapter, counts, spoke


def close(got, expected, dtype, what):
    error = (got - expected.detach()).abs().max().item()
    assert error <= TOLERANCE[dtype], f"{what}: off by {error:.2e}"


def assert_none_some_all(counts):
    """The stream had batches with no, some, and only reliable images."""
    assert any(reliable == 0 for reliable, _ in counts)
    assert any(0 < reliable < size for reliable, size in counts)
    assert any(reliable == size for reliable, size in counts)
