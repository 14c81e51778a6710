"""What teachers, banks, memories and running statistics do with windows, autocast, and models that
are out of the ordinary."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from toys import stream, toy_net, toy_source

import holdfast


@pytest.mark.parametrize("spec", ["t3a", "tsd"])
def test_of_a_window_only_the_newest_image_enters_the_bank(spec):
    net = toy_net()
    adapter = holdfast.adapt(net, spec, window=4)
    for image in torch.cat(stream(("some", "all"))):
        adapter(image[None])
    state = adapter._state.tensors()
    (entropies,) = (t for name, t in state.items() if name.endswith("supports.entropies"))
    # 7 rows of the head and 32 images; under batch statistics, the first alone is only predicted.
    assert int((entropies < torch.inf).sum()) == 7 + (32 if spec == "t3a" else 31)


def test_of_a_window_only_the_newest_image_enters_the_memory():
    adapter = holdfast.adapt(toy_net(), "rotta(every=8)", window=4)
    for image in torch.cat(stream(("some", "all"))):
        adapter(image[None])
    held = adapter._state.extra_state()
    assert int(held["memory/clock"]) == 32
    assert len(torch.unique(held["memory/images"], dim=0)) == len(held["memory/images"])


def test_a_norm_layer_of_ones_own_keeps_what_it_does_under_robust_statistics():
    class WithRelu(nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x).relu()

    net = toy_net(WithRelu)
    images = stream(("some",))[0]
    frozen, rotta = (holdfast.adapt(net, spec) for spec in ("frozen", "rotta"))
    assert torch.equal(rotta.predict(images), frozen.predict(images))


def test_cottas_source_model_is_that_of_the_beginning():
    """Whatever becomes of the caller's model."""
    net, other = toy_net(), toy_net()
    spec = "cotta(augment_below=0.7,views=2,restore=0,augment=flip)"
    adapter, expected = holdfast.adapt(net, spec), holdfast.adapt(other, spec)
    with torch.no_grad():
        net.fc.weight.mul_(9)
    for images in stream():
        assert torch.equal(adapter(images), expected(images))


@pytest.mark.parametrize("spec", ["t3a", "tsd", "cotta", "rotta", "ttac"])
def test_adapters_made_and_run_under_autocast(spec):
    net = toy_net()
    source = toy_source(net)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        adapter = holdfast.adapt(net, spec, source=source)
        for images in stream():
            assert adapter(images).dtype is torch.float32
        assert adapter.last.refused is None
        assert adapter.frozen(statistics="batch")(images).shape == adapter.predict(images).shape


@pytest.mark.parametrize("spec", ["cotta(augment_below=1,views=2)", "rmt", "t3a", "rotta"])
def test_frozen_of_a_model_that_returns_an_object(spec):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = toy_net()

        def forward(self, images):
            return SimpleNamespace(logits=self.net(images))

    model = Wrapped()
    spec = "rmt(warmup_samples=0)" if spec == "rmt" else spec
    adapter = holdfast.adapt(model, spec, source=toy_source(model))
    images = stream(("all",))[0].contiguous(memory_format=torch.channels_last)
    adapter(images)
    out = copy.deepcopy(adapter.frozen(statistics="batch"))(images)
    assert torch.equal(getattr(out, "logits", out), adapter.predict(images))


def test_consistency_on_ttac_looks_at_its_view_as_at_the_batch():
    """Both by batch statistics: with the same images there is nothing to agree upon."""
    net = toy_net()
    spec = "ttac(weight=0)+consistency(augment=none)"
    adapter = holdfast.adapt(net, spec)
    images = stream(("all",))[0]
    before = adapter._state.snapshot()
    adapter(images)
    entropy = torch.distributions.Categorical(
        logits=holdfast.adapt(net, "bn").predict(images)
    ).entropy()
    assert adapter.last.losses["consistency"] == pytest.approx(entropy.mean().item(), rel=1e-4)
    tracked = [n for n in before if n.endswith("norm1.num_batches_tracked")]
    assert int(adapter._state.tensors()[tracked[0]] - before[tracked[0]]) == 1


def test_ttac_predicts_one_image_by_running_statistics():
    net = toy_net()
    adapter = holdfast.adapt(net, "ttac", source=toy_source(net))
    images = stream(("all",))[0]
    adapter(images)
    assert torch.allclose(adapter.predict(images[:1]), adapter.predict(images)[:1], atol=1e-4)
    with pytest.raises(ValueError, match="window=W"):
        adapter(images[:1])


def test_images_that_cannot_be_augmented_are_refused_at_once():
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 7),
    )
    for spec in ("cotta", "rotta"):
        with pytest.raises(ValueError, match=r"works on RGB.*augment=flip"):
            holdfast.adapt(net, spec)(torch.rand(4, 1, 8, 8))
