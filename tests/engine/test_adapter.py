"""What the laws do not cover: options, shapes of models, and what is reported."""

from functools import partial

import pytest
import torch
from running import run
from torch import nn
from toys import (
    CLASSES,
    group_norm,
    state_of,
    stream,
    toy_net,
    toy_source,
)

import holdfast
from holdfast.models import resnet20

# Precision and memory.


def test_float64_stays_float64():
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, "eata+debias", source=toy_source(net))
    # Images in another type are taken into the model's.
    assert adapter(stream(("all",))[0]).dtype == torch.float64
    floats = [t for t in state_of(adapter).values() if t.is_floating_point()]
    assert {t.dtype for t in floats} == {torch.float64}


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_forwards_full_precision_losses(precision):
    net = toy_net()
    source = toy_source(net)
    full = holdfast.adapt(net, "eata(lr=0.001)+debias", source=source)
    half = holdfast.adapt(net, "eata(lr=0.001)+debias", source=source, precision=precision)
    ambient = holdfast.adapt(net, "eata(lr=0.001)+debias", source=source)
    with pytest.raises(ValueError, match="precision is None"):
        holdfast.adapt(net, "tent", precision="half")
    for images in stream(("some", "all", "some", "all")):
        exact, logits = full(images), half(images)
        with torch.autocast("cpu", dtype=getattr(torch, precision)):
            assert torch.equal(ambient(images), logits)
        assert logits.dtype == torch.float32
        assert 1e-6 < (logits - exact).abs().max() < 0.7
        assert half.last.gradient_norm == pytest.approx(full.last.gradient_norm, rel=0.2)
    for name, tensor in state_of(half).items():
        assert tensor.dtype not in (torch.bfloat16, torch.float16), name


def test_autocast_does_not_keep_stale_weights():
    """Under one long autocast, torch would reuse the cast of a weight that has since moved."""
    net = toy_net()
    long, short = (holdfast.adapt(net, "tent(lr=0.05,select=all)") for _ in range(2))
    batches = stream(("all",) * 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = run(long, batches)
    expected = []
    for images in batches:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected.append(short(images))
    for one, other in zip(got, expected, strict=True):
        assert torch.equal(one, other)


def test_memory_formats_agree():
    torch.manual_seed(0)
    net = resnet20(10)
    nn.init.normal_(net.fc.weight, std=2)
    batches = [(torch.rand(16, 3, 32, 32), torch.arange(16) % 10) for _ in range(3)]
    source = holdfast.Source.from_loader(net, batches)
    default, contiguous = (
        holdfast.adapt(net, "eata(lr=0.001)+debias", source=source, memory_format=memory_format)
        for memory_format in ("auto", "contiguous")
    )
    assert default.model.conv1.weight.is_contiguous(memory_format=torch.channels_last)
    assert contiguous.model.conv1.weight.is_contiguous()
    for images, _ in batches:
        assert (default(images) - contiguous(images)).abs().max() < 2e-4
        assert default.last.stepped
    with pytest.raises(ValueError, match="'channels_last' or 'contiguous'"):
        holdfast.adapt(net, "tent", memory_format="nhwc")


def test_group_norm_is_kept_from_channels_last():
    """Torch's CPU kernel for its backward crashes there; see `choose_memory_format`."""
    net = toy_net(group_norm)
    assert holdfast.adapt(net, "tent").network.memory_format is torch.contiguous_format
    with pytest.raises(ValueError, match="GroupNorm crashes"):
        holdfast.adapt(net, "tent", memory_format="channels_last")


# Dynamo's part is quick, and shows what is traced and when it is traced again; Inductor's is not.
@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_is_the_same(backend, monkeypatch):
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    net = toy_net()
    source = toy_source(net)
    spec = "eata(lr=0.001)+debias+consistency(augment=flip)"
    plain, compiled = (holdfast.adapt(net, spec, source=source, compile=c) for c in (False, True))
    for images in stream(("some", "all", "none")):
        assert (compiled(images) - plain(images)).abs().max() < 2e-4
        assert compiled.last.losses == pytest.approx(plain.last.losses, abs=1e-3)
    for name, buffer in plain.frozen().named_buffers():
        assert torch.allclose(buffer, compiled.frozen().get_buffer(name), atol=1e-4)


# What is reported.


def test_last_reports_the_batch():
    net = toy_net()
    adapter = holdfast.adapt(net, "eata(redundancy=2)+debias", source=toy_source(net))
    images = stream(("some",))[0]
    logits = adapter.predict(images)
    p = logits.softmax(1)
    reliable = int((-(p * p.log()).sum(1) < 0.4 * torch.tensor(7.0).log()).sum())
    adapter(images)
    last = adapter.last
    assert last.reliable == reliable > 0
    assert last.images == {"entropy": reliable, "ema": reliable, "src": reliable, "fisher": 16}
    assert list(last.losses) == ["entropy", "ema", "src", "fisher"]
    assert last.losses["fisher"] == 0
    assert last.stepped and last.gradient_norm > 0
    assert (last.batch, last.forwards, last.backwards) == (1, 1, 1)
    assert 0 < last.seconds < 60


def test_reliable_images_of_a_window_are_counted_once():
    adapter = holdfast.adapt(toy_net(), "debias(lambda_src=0)", window=8)
    for images in stream(("all", "all")):
        for image in images:
            adapter(image[None])
            assert adapter.last.reliable in (None, 0, 1)
    assert adapter.last.images["ema"] > 1  # learnt from again and again


def test_images_that_need_a_gradient_get_none():
    images = stream(("some",))[0].contiguous(memory_format=torch.channels_last)
    images.requires_grad_(True)
    holdfast.adapt(toy_net(), "tent")(images)
    assert images.grad is None


# Windows.


def test_a_window_survives_saving(tmp_path):
    net = toy_net()
    adapter = holdfast.adapt(net, "tent(lr=0.001)", window=4)
    images = stream(("some",))[0]
    for image in images[:3]:
        adapter(image[None])
    adapter.save(tmp_path / "state")
    loaded = holdfast.load(tmp_path / "state", net)
    for image in images[3:8]:
        assert torch.equal(loaded(image[None]), adapter(image[None]))


def test_a_window_holds_what_came_in_though_the_model_writes_into_it():
    class Writing(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = toy_net()

        def forward(self, images):
            images *= 0.5
            return self.net(images)

    adapter = holdfast.adapt(Writing(), "bn", window=4)
    images = stream(("all",))[0]
    for image in images[:6]:
        got = adapter(image[None].clone())
    expected = holdfast.adapt(toy_net(), "bn")(images[2:6] * 0.5)[-1:]
    assert torch.allclose(got, expected, atol=1e-5)


def test_a_window_holds_images_of_one_size():
    adapter = holdfast.adapt(toy_net(), "tent", window=4)
    adapter(torch.rand(2, 3, 8, 8))
    with pytest.raises(ValueError, match=r"window holds images of shape \(3, 8, 8\)"):
        adapter(torch.rand(1, 3, 9, 9))
    adapter.reset()
    assert adapter(torch.rand(6, 3, 9, 9)).shape == (6, CLASSES)


@pytest.mark.parametrize("window", [0, 1, 2.5, -3])
def test_bad_windows(window):
    with pytest.raises(ValueError, match="at least 2"):
        holdfast.adapt(toy_net(), "tent", window=window)


def test_the_first_image_of_a_window_is_seen_with_the_sources_statistics():
    net = toy_net()
    adapter = holdfast.adapt(net, "tent", window=4)
    image = stream(("all",))[0][:1]
    expected = net(image)
    assert torch.allclose(adapter.predict(image), expected, atol=1e-5)
    assert torch.allclose(adapter(image), expected, atol=1e-5)
    assert not adapter.last.stepped


# Input range.


def test_input_range():
    net = toy_net()
    images = stream(("all",))[0]
    holdfast.adapt(net, "tent")(images.clamp(max=0.999) + 0.0015)  # rounding is let through
    holdfast.adapt(net, "tent", input_range=None)(images * 4 - 2)
    holdfast.adapt(net, "tent", input_range=(-1, 1))(images * 2 - 1)
    with pytest.raises(ValueError, match=r"expected \[-1, 1\]"):
        holdfast.adapt(net, "tent", input_range=(-1, 1))(images * 3)


def test_normalized():
    net = toy_net()
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    images = stream(("all",))[0]
    by_hand = torch.stack([(images[:, i] - mean[i]) / std[i] for i in range(3)], 1)
    assert torch.allclose(holdfast.normalized(net, mean, std)(images), net(by_hand), atol=1e-5)
    with pytest.raises(ValueError, match="as many values as there are channels"):
        holdfast.normalized(net, mean, (0.2, 0.3))
    with pytest.raises(ValueError, match="above 0"):
        holdfast.normalized(net, mean, (0.2, 0.3, 0))


def test_inference_tensors_can_be_learnt_from_by_every_layer():
    """The first convolution saves its input for the backward, which an inference tensor forbids."""
    adapter = holdfast.adapt(toy_net(), "tent(select=all)")
    with torch.inference_mode():
        adapter(stream(("some",))[0].contiguous(memory_format=torch.channels_last))
    assert adapter.last.stepped
