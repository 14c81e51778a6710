"""The laws on what goes wrong: it is reported, and nothing changes."""

import warnings
from contextlib import ExitStack

import pytest
import torch
from laws import bad_batch_is_an_error_and_changes_nothing
from running import LAW, law_of_openings, run
from toys import assert_same_state, state_of, stream, toy_net, toy_source

import holdfast


def poisoned(value):
    images = stream(("some",))[0]
    images[3, 1, 2, 5] = value
    return images


BAD = {
    "NaN": (poisoned(float("nan")), "NaN or Inf"),
    "Inf": (poisoned(float("inf")), "NaN or Inf"),
    "0-255": (stream(("all",))[0] * 255, r"0–255: divide by 255.*input_range=None"),
    "normalised": (stream(("all",))[0] * 4 - 2, r"holdfast\.normalized.*input_range=None"),
    "integers": ((stream(("all",))[0] * 255).byte(), r"torch\.uint8.*/ 255"),
    "one image without a batch": (stream(("all",))[0][0], r"\(3, 8, 8\).*images\[None\]"),
    "channels last": (stream(("all",))[0].permute(0, 2, 3, 1), r"\(16, 8, 8, 3\)"),
    "empty": (torch.zeros(0, 3, 8, 8), "empty batch"),
    "not a tensor": ([1, 2], r"torch\.Tensor, not list"),
}


@LAW
def test_a_bad_batch_is_an_error_and_changes_nothing(adapt, spec):
    adapter = adapt(spec)
    good = stream(("some", "all", "some", "none", "all") * 2, seed=5)
    for batch, (images, message) in zip(good, BAD.values(), strict=False):
        adapter(batch)
        bad_batch_is_an_error_and_changes_nothing(adapter, images, message)
    assert all(p.grad is None for p in adapter.model.parameters())
    untroubled = adapt(spec)
    run(untroubled, good[: len(BAD)])
    assert torch.equal(adapter(good[-1]), untroubled(good[-1]))


@law_of_openings
def test_logits_that_overflow_are_reported_and_not_learnt_from(adapt, spec):
    adapter = adapt(spec)
    run(adapter, stream(("some", "all")))
    before = state_of(adapter)
    with ExitStack() as hooks:
        for network in adapter._slots.networks:
            fc = network.model.fc
            hooks.enter_context(fc.register_forward_hook(lambda layer, x, output: output * 1e38))
        hooks.enter_context(pytest.warns(UserWarning, match=r"not adapted to: logits.*NaN or Inf"))
        adapter(stream(("all",))[0])
    assert "logits" in adapter.last.refused
    assert not adapter.last.stepped
    assert_same_state(state_of(adapter), before)


@LAW
def test_features_that_are_not_finite_are_reported_and_not_learnt_from(adapt, spec):
    """Of one image, behind the last norm layer: not every method looks at logits alone."""
    adapter = adapt(spec)
    run(adapter, stream(("some", "all")))
    before = state_of(adapter)

    for value in (float("nan"), float("inf")):

        def poison(layer, inputs, output, value=value):
            return output.index_fill(0, torch.tensor([0]), value)

        with ExitStack() as hooks:
            for network in adapter._slots.networks:
                hooks.enter_context(network.model.norm2.register_forward_hook(poison))
            hooks.enter_context(pytest.warns(UserWarning, match=r"not adapted to: .*NaN or Inf"))
            adapter(stream(("all",))[0])
        assert adapter.last.refused and not adapter.last.stepped
        assert_same_state(state_of(adapter), before)


@pytest.mark.parametrize("after", [False, True])
def test_an_update_that_goes_too_far_is_reported(adapt, after):
    """With the first batch where logits are made after it, else with the next."""
    adapter = adapt(f"ttac(lr=1e20,predict={'after' if after else 'before'})")
    batches = stream(("all", "all"))
    if not after:
        adapter(batches[0])
    with pytest.warns(UserWarning, match="NaN or Inf") as caught:
        adapter(batches[1])
    assert adapter.last.refused and adapter.last.stepped == after
    assert all(one.filename == __file__ for one in caught)


class BadGradient(torch.autograd.Function):
    """Harmless forwards, a gradient of Inf while `bad` is set."""

    bad = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("inf") if BadGradient.bad else gradient


@LAW
def test_a_gradient_that_turns_infinite_is_never_applied(spec):
    net = toy_net()
    net.norm2.register_forward_hook(lambda layer, inputs, output: BadGradient.apply(output))
    adapter = holdfast.adapt(net, spec, source=toy_source(net, 16))
    batches = stream(("all", "some"))
    run(adapter, batches)
    before = state_of(adapter)
    BadGradient.bad = True
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            adapter(batches[0])
    finally:
        BadGradient.bad = False
    if not holdfast.compose(spec).host.learns:
        assert not adapter.last.backwards
        return
    assert "gradient norm" in adapter.last.refused
    assert not adapter.last.stepped
    assert any("gradient norm" in str(each.message) for each in caught)
    assert_same_state(state_of(adapter), before)
    assert all(p.grad is None for p in adapter.model.parameters())


@law_of_openings
def test_an_error_inside_the_model_changes_nothing(adapt, spec):
    """A batch that fails half-way through, behind the first norm layer."""
    adapter = adapt(spec)
    run(adapter, stream(("some", "all")))
    before = state_of(adapter)
    fails = adapter.model.conv2.register_forward_pre_hook(lambda *_: 1 / 0)
    with fails, pytest.raises(ZeroDivisionError):
        adapter(stream(("some",))[0])
    assert_same_state(state_of(adapter), before)
