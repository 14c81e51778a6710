"""What is exported: a plain module that serves single images."""

import copy
import pickle
from typing import NamedTuple

import pytest
import torch
from running import run
from torch import Tensor, nn
from toys import (
    CLASSES,
    stream,
    toy_net,
    toy_source,
)

import holdfast
from holdfast.engine.adapter import KIND
from holdfast.util import files


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
