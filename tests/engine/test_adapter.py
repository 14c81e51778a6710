"""What the laws do not cover: options, shapes of models, and what is reported."""

import copy
import pickle
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from toys import (
    CLASSES,
    group_norm,
    state_of,
    stream,
    toy_net,
    toy_source,
)

import holdfast
from holdfast.engine.adapter import KIND
from holdfast.models import resnet20
from holdfast.util import files


def run(adapter, batches):
    return [adapter(images) for images in batches]


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


def test_compiled_is_the_same():
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


# Frozen.


def test_frozen_serves_single_images_and_has_the_models_keys():
    net = toy_net()
    adapter = holdfast.adapt(net, "tent(lr=0.001)")
    batches = stream(("some", "all") * 8)
    run(adapter, batches)
    frozen = adapter.frozen()
    assert frozen.state_dict().keys() == net.state_dict().keys()
    assert not any(p.requires_grad for p in frozen.parameters())
    assert not frozen.fc._forward_pre_hooks
    images = batches[-1]
    together, single = frozen(images), torch.cat([frozen(each[None]) for each in images])
    assert torch.allclose(together, single, atol=1e-4)
    agree = (together.argmax(1) == adapter.predict(images).argmax(1)).float().mean()
    assert agree > 0.7


def test_frozen_holds_the_average_statistics_of_recent_batches():
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, "bn")
    # A batch of n images counts n / (n + 16), and the last one has 5.
    batches = stream(("some", "all", "none"), torch.float64, last=5)
    run(adapter, batches)
    means = [net.conv1(images).mean((0, 2, 3)) for images in batches]
    variances = [net.conv1(images).transpose(0, 1).flatten(1).var(1) for images in batches]
    weights = [1 / 2 * 1 / 2 * 16 / 21, 1 / 2 * 16 / 21, 5 / 21]
    for buffer, parts in (("running_mean", means), ("running_var", variances)):
        expected = sum(w * part for w, part in zip(weights, parts, strict=True)) / sum(weights)
        assert torch.allclose(getattr(adapter.frozen().norm1, buffer), expected, atol=1e-12)


def test_statistics_in_a_state_of_version_0_1_count_as_they_did(tmp_path):
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, "bn")
    batches = stream(("some", "all"), torch.float64)
    adapter(batches[0])
    adapter.save(tmp_path / "state")
    header, tensors = files.read(tmp_path / "state", KIND)
    mean = net.conv1(batches[0]).mean((0, 2, 3))
    name = "statistics/0/norm1.running_mean"
    assert torch.allclose(tensors[name], mean / 2, atol=1e-12)
    old = {n: t for n, t in tensors.items() if not n.endswith("/weight")} | {name: 0.1 * mean}
    files.write(tmp_path / "old", KIND, header, old)
    again = holdfast.load(tmp_path / "old", net)
    assert torch.allclose(again.frozen().norm1.running_mean, mean, atol=1e-12)
    again(batches[1])
    later = net.conv1(batches[1]).mean((0, 2, 3))
    expected = (0.05 * mean + 0.5 * later) / 0.55
    assert torch.allclose(again.frozen().norm1.running_mean, expected, atol=1e-12)


def test_a_norm_layer_used_twice_is_averaged_over_both_uses():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
            self.fc = nn.Linear(3, CLASSES)

        def forward(self, images):
            return self.fc(self.norm(self.conv(self.norm(images))).mean((2, 3)))

    adapter = holdfast.adapt(Twice().double(), "bn")
    images = stream(("all",), torch.float64)[0]
    adapter(images)
    first = images.mean((0, 2, 3))
    second = adapter.model.conv(adapter.model.norm(images)).mean((0, 2, 3))
    expected = (0.5 * first + second) / 1.5
    assert torch.allclose(adapter.frozen().norm.running_mean, expected, atol=1e-12)


def test_frozen_before_the_stream_is_the_source():
    net = toy_net()
    images = stream(("some",))[0]
    frozen = holdfast.adapt(net, "tent").frozen()
    assert torch.allclose(frozen(images), net(images), atol=1e-5)


def test_frozen_calibrated_on_a_loader():
    net = toy_net(dtype=torch.float64)
    adapter = holdfast.adapt(net, "tent(lr=0.001)")
    run(adapter, stream(("some",) * 3, torch.float64))
    loader = stream(("all",) * 4, torch.float64, seed=8)
    frozen = adapter.frozen(calibrate=[(images, None) for images in loader])
    expected = sum(net.conv1(images).mean((0, 2, 3)) for images in loader) / 4
    assert torch.allclose(frozen.norm1.running_mean, expected, atol=1e-12)
    assert frozen.norm1.momentum == net.norm1.momentum
    with pytest.raises(ValueError, match="leave statistics='batch' out"):
        adapter.frozen(calibrate=loader, statistics="batch")
    with pytest.raises(ValueError, match="no batch of two"):
        adapter.frozen(calibrate=[])
    with pytest.raises(ValueError, match="'stream' or 'batch'"):
        adapter.frozen(statistics="source")


def test_frozen_exports_and_scripts():
    adapter = holdfast.adapt(toy_net(), "tent")
    images = stream(("some",))[0]
    adapter(images)
    frozen = adapter.frozen()
    exported = torch.export.export(frozen, (images,)).module()
    assert torch.allclose(exported(images), frozen(images), atol=1e-5)


def test_an_adapter_tells_how_to_export_and_to_copy_it():
    adapter, images = holdfast.adapt(toy_net(), "tent"), stream(("some",))[0]
    advice = r"exported is adapter\.frozen\(\)"
    with pytest.raises(ValueError, match=advice):
        torch.export.export(adapter, (images,))
    with pytest.raises(TypeError, match=advice):
        torch.jit.script(adapter)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"save\(\) it and holdfast\.load"):
            duplicate(adapter)


def test_what_an_adapter_and_a_source_show_of_themselves():
    net = toy_net()
    source = toy_source(net)
    assert repr(source) == f"<Source of 42 images, {CLASSES} classes, 12 features: prototypes>"
    adapter = holdfast.adapt(net, "eata+debias", source=source)
    assert "fisher" in repr(source)
    assert repr(adapter) == f"<Adapter eata+debias on ToyNet, {CLASSES} classes: 0 batches>"
    adapter(stream(("some",))[0])
    assert repr(adapter).endswith(": 1 batch>")


class Answer(NamedTuple):
    logits: Tensor
    loss: None = None


class WithLogits(nn.Module):
    """Returns an object, as models of Hugging Face do."""

    def __init__(self):
        super().__init__()
        self.net = toy_net()

    def forward(self, images):
        return Answer(self.net(images))


@pytest.mark.parametrize("spec", ["tent", "bn", "t3a", "cotta(views=2)", "rotta"])
@pytest.mark.parametrize("seen", [0, 2])
def test_frozen_gives_a_tensor_whatever_the_model_returns(spec, seen):
    batches = stream(("some", "all", "some"))
    by_object, by_tensor = (holdfast.adapt(net, spec) for net in (WithLogits(), toy_net()))
    for images in batches[:seen]:
        by_object(images), by_tensor(images)
    for statistics in ("stream", "batch"):
        frozen = by_object.frozen(statistics=statistics)
        logits = frozen(batches[-1])
        assert isinstance(logits, Tensor)
        assert torch.equal(logits, by_tensor.frozen(statistics=statistics)(batches[-1]))
    exported = torch.export.export(by_object.frozen(), (batches[-1],)).module()
    assert torch.allclose(exported(batches[-1]), by_object.frozen()(batches[-1]), atol=1e-5)


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
