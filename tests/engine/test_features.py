"""Features and prototypes of an adapter, for looking at."""

import pytest
import torch
from compositions import COMPOSITIONS, learns_from_a_memory
from running import LAW, law_of, run
from torch import nn
from toys import (
    CLASSES,
    FEATURES,
    assert_same_state,
    state_of,
    stream,
    toy_net,
    toy_source,
)

import holdfast
from holdfast.parts import ViewStep


def seen_by_head(adapter, images):
    """What the head of the network that learns is given first, while it adapts to a batch: in the
    forward that it learns from, if it does. (Dropout may look at the batch before.)"""
    seen = []
    with adapter.model.fc.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])):
        adapter(images)
    return next((each for each in seen if each.requires_grad), seen[0]).detach()


@LAW
@pytest.mark.filterwarnings("ignore:.*the stream has batches of")
def test_features_change_nothing(spec):
    net = toy_net()
    source = toy_source(net)
    computed_logits, left_alone = (holdfast.adapt(net, spec, source=source) for _ in range(2))
    for images in stream(("some", "all", "none", "some")):
        last, before, drawn = computed_logits.last, state_of(computed_logits), torch.get_rng_state()
        features = computed_logits.features(images)
        assert features.shape == (len(images), FEATURES) and not features.requires_grad
        assert computed_logits.last == last
        assert_same_state(state_of(computed_logits), before)
        assert torch.equal(torch.get_rng_state(), drawn)
        assert torch.equal(computed_logits(images), left_alone(images))
        assert computed_logits.last.forwards == left_alone.last.forwards
    assert_same_state(state_of(computed_logits), state_of(left_alone))


@law_of([s for s in COMPOSITIONS if not learns_from_a_memory(s)])
@pytest.mark.filterwarnings("ignore:.*the stream has batches of")
def test_features_are_those_of_the_next_step(spec):
    net = toy_net()
    adapter = holdfast.adapt(net, spec, source=toy_source(net))
    if isinstance(adapter._slots.learn, ViewStep):
        pytest.skip("the head sees a view of these images, not them")
    for images in stream(("some", "all", "some")):
        features = adapter.features(images)
        assert torch.equal(features, seen_by_head(adapter, images))


@pytest.mark.parametrize("method", ["rotta", "note(iabn=false)", "sotta(threshold=0.5)", "petta"])
def test_features_where_learning_is_from_a_memory_are_by_stored_statistics(method):
    net = toy_net()
    adapter = holdfast.adapt(net, method, source=toy_source(net))
    run(adapter, stream(("some", "all")))
    images = stream(("some",), seed=4)[0]
    features = adapter.features(images)
    assert torch.allclose(adapter.model.fc(features), adapter.model(images), atol=1e-5)
    assert torch.allclose(features[:1], adapter.features(images[:1]), atol=1e-5)


def test_frozen_features_are_the_sources():
    net = toy_net()
    adapter = holdfast.adapt(net, "frozen")
    images = stream(("all",))[0]
    adapter(images)
    assert torch.allclose(net.fc(adapter.features(images)), net(images), atol=1e-5)


@pytest.mark.parametrize("spec", ["tent", "ttac", "eata+debias"])
def test_features_see_the_window(spec):
    net = toy_net()
    adapter = holdfast.adapt(net, spec, source=toy_source(net), window=5)
    images = stream(("some",))[0]
    for start, end in ((0, 1), (1, 3), (3, 4), (4, 8), (8, 9)):
        features = adapter.features(images[start:end])
        assert features.shape == (end - start, FEATURES)
        assert torch.equal(features, seen_by_head(adapter, images[start:end])[start - end :])


def test_features_in_half_precision():
    net = toy_net()
    full, half, ambient = (
        holdfast.adapt(net, "tent", precision=precision) for precision in (None, "bfloat16", None)
    )
    images = stream(("some",))[0]
    features = half.features(images)
    assert features.dtype == torch.float32
    assert (features - full.features(images)).abs().max() > 1e-4
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(ambient.features(images), features)
    assert torch.equal(features, seen_by_head(half, images).float())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_features_without_gradients_switched_on(mode):
    net = toy_net()
    adapter = holdfast.adapt(net, "eata+debias", source=toy_source(net))
    images = stream(("some",))[0]
    expected = adapter.features(images)
    with mode():
        features = adapter.features(images)
    assert torch.equal(features, expected) and not features.is_inference()
    adapter(images)
    assert adapter.last.stepped


def test_features_that_cannot_be():
    image = stream(("some",))[0][:1]
    adapter = holdfast.adapt(toy_net(), "tent")
    with pytest.raises(ValueError, match=r"batch of one.*window=W"):
        adapter.features(image)
    with pytest.raises(ValueError, match="divide by 255"):
        adapter.features(255 * torch.rand(4, 3, 8, 8))
    headless = nn.Sequential(nn.Conv2d(3, CLASSES, 8), nn.BatchNorm2d(CLASSES), nn.Flatten())
    with pytest.raises(ValueError, match=r"its head is not known.*head="):
        holdfast.adapt(headless, "tent").features(torch.rand(4, 3, 8, 8))


@LAW
def test_prototypes_are_there_with_debias_alone(spec):
    net = toy_net()
    adapter = holdfast.adapt(net, spec, source=toy_source(net))
    assert (adapter.prototypes is not None) == ("debias" in spec)


def test_prototypes_are_those_of_debias_as_stored():
    """Between P before and after a batch lies (1 − α) of the way to the normalised mean feature."""
    net = toy_net(dtype=torch.float64)
    source = toy_source(net)
    adapter = holdfast.adapt(net, "tent(lr=0.01)+debias(alpha=0.75,filter=false)", source=source)
    old = adapter.prototypes
    assert torch.allclose(old, nn.functional.normalize(net.fc.weight.detach(), dim=1), atol=1e-12)
    images = stream(("all",), torch.float64)[0]
    features, labels = adapter.features(images), adapter.predict(images).argmax(1)
    adapter(images)
    assert len(labels.unique()) > 2
    for label, (one, other) in enumerate(zip(old, adapter.prototypes, strict=True)):
        if (labels == label).any():
            mean = features[labels == label].mean(0)
            one = 0.75 * one + 0.25 * mean / mean.norm()
            assert other.norm() < 0.999  # not normalised again
        assert torch.allclose(other, one, atol=1e-10)


def test_prototypes_are_a_copy():
    net = toy_net()
    adapter = holdfast.adapt(net, "tent+debias", source=toy_source(net))
    before, held = state_of(adapter), adapter.prototypes
    held.zero_()
    assert_same_state(state_of(adapter), before)
    held = adapter.prototypes
    run(adapter, stream(("all",)))
    assert not torch.equal(held, adapter.prototypes)


def test_no_prototypes_without_the_term_that_keeps_them():
    net = toy_net()
    adapter = holdfast.adapt(net, "tent+debias(lambda_ema=0)", source=toy_source(net))
    assert adapter.prototypes is None
