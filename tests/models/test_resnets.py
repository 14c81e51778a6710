"""Networks of the benchmarks: their shapes, key names, and loading of published checkpoints."""

import os
import re
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

import holdfast
from holdfast.models import NETWORKS, build, load_checkpoint, resnet20, resnet50, wrn28_10, wrn40_2
from holdfast.models.normalization import Normalized
from holdfast.models.resnets import WideResNet


def count(net):
    return sum(parameter.numel() for parameter in net.parameters())


def test_the_published_numbers_of_parameters():
    with torch.device("meta"):
        nets = {name: network.make(network.classes) for name, network in NETWORKS.items()}
    counts = {name: count(net) for name, net in nets.items()}
    assert counts["resnext29"] == 6_900_132
    assert counts["resnet50"] == 25_557_032
    assert counts["wrn28-10"] == 36_479_194
    assert counts["wrn40-2"] == 2_243_546 + 90 * 129
    assert counts["resnet20"] == 278_324 and counts["resnet110"] > counts["resnet56"]


def shaken(net, seed=0):
    """A net whose every number counts: fresh norm layers would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            noise = torch.randn(value.shape, generator=generator)
            scale = 0.1 if value.ndim == 1 else value[0].numel() ** -0.5
            value.copy_(1 + scale * noise.abs() if name.endswith("var") else scale * noise)
            if value.ndim == 1 and name.endswith("weight"):
                value.add_(1)
    return net.eval()


class ByHand:
    """Forward passes written out over the key names of a checkpoint."""

    def __init__(self, net):
        self.values = net.state_dict()

    def conv(self, name, x, stride=1, padding=1):
        return F.conv2d(x, self.values[f"{name}.weight"], None, stride, padding)

    def norm(self, name, x):
        names = ("running_mean", "running_var", "weight", "bias")
        return F.batch_norm(x, *(self.values[f"{name}.{each}"] for each in names))

    def head(self, name, x):
        return F.linear(x, self.values[f"{name}.weight"], self.values[f"{name}.bias"])

    def wide_resnet(self, x, blocks):
        x = self.conv("conv1", x)
        for stage in (1, 2, 3):
            for block in range(blocks):
                name = f"block{stage}.layer.{block}"
                stride = 2 if stage > 1 and block == 0 else 1
                active = F.relu(self.norm(f"{name}.bn1", x))
                out = F.relu(self.norm(f"{name}.bn2", self.conv(f"{name}.conv1", active, stride)))
                out = self.conv(f"{name}.conv2", out)
                x = self.conv(f"{name}.convShortcut", active, stride, 0) if block == 0 else x
                x = x + out
        return self.head("fc", F.avg_pool2d(F.relu(self.norm("bn1", x)), 8).flatten(1))

    def resnet50(self, x):
        x = F.relu(self.norm("bn1", self.conv("conv1", x, 2, 3)))
        x = F.max_pool2d(x, 3, 2, 1)
        for stage, blocks in enumerate((3, 4, 6, 3), 1):
            for block in range(blocks):
                name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
                out = F.relu(self.norm(f"{name}.bn1", self.conv(f"{name}.conv1", x, 1, 0)))
                out = F.relu(self.norm(f"{name}.bn2", self.conv(f"{name}.conv2", out, stride)))
                out = self.norm(f"{name}.bn3", self.conv(f"{name}.conv3", out, 1, 0))
                if block == 0:
                    x = self.conv(f"{name}.downsample.0", x, stride, 0)
                    x = self.norm(f"{name}.downsample.1", x)
                x = F.relu(x + out)
        return self.head("fc", F.adaptive_avg_pool2d(x, 1).flatten(1))


@torch.no_grad()
def test_wide_resnets_compute_what_their_checkpoints_were_trained_for():
    net = shaken(WideResNet(16, 2, 7))
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(net(images), ByHand(net).wide_resnet(images, 2))
    with pytest.raises(ValueError, match="6n \\+ 4, not 20"):
        WideResNet(20, 2)
    assert len(wrn40_2().block1.layer) == 6
    with torch.device("meta"):
        assert len(wrn28_10().block3.layer) == 4


@torch.no_grad()
def test_resnet_50_computes_what_torchvisions_does():
    net = shaken(resnet50(5))
    images = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(net(images), ByHand(net).resnet50(images))


def same_weights(one, other):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def as_augmix(net):
    state = {f"module.{key}": value for key, value in net.state_dict().items()}
    return {"epoch": 199, "best_acc": 0.8, "optimizer": {"lr": 0.1}, "state_dict": state}


def as_robustbench(net):
    state = {f"model.{key}": value for key, value in net.state_dict().items()}
    return {**state, "mu": torch.full((1, 3, 1, 1), 0.4), "sigma": torch.full((1, 3, 1, 1), 0.2)}


def as_old_torchvision(net):
    return {k: v for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}


def saved(tmp_path, net):
    save_file(net.state_dict(), tmp_path / "weights")
    return tmp_path / "weights"


@pytest.mark.parametrize(("classes", "mean", "std"), [(10, 0.4914, 0.2023), (100, 0.5070, 0.2673)])
def test_the_normalisation_goes_by_the_classes_of_the_public_weights(tmp_path, classes, mean, std):
    inside = build("resnet20", saved(tmp_path, resnet20(classes)))
    assert inside.mean[0].item() == pytest.approx(mean)
    assert inside.std[0].item() == pytest.approx(std)
    bare = build("resnet20", classes=classes)
    assert bare.mean[0].item() == pytest.approx(mean)


def test_a_normalisation_that_cannot_be_known_is_told_of(tmp_path):
    path = saved(tmp_path, resnet20(43))
    with pytest.warns(UserWarning, match=r"43 classes.*mean \(0\.507.*--mean and --std"):
        build("resnet20", path)
    inside = build("resnet20", path, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    assert inside.mean.flatten().tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert inside.std.flatten().tolist() == pytest.approx([0.4, 0.5, 0.6])
    build("resnet20", classes=43)  # there is nothing to know of untrained weights


def test_a_given_normalisation_comes_whole_and_once(tmp_path):
    with pytest.raises(ValueError, match="come together"):
        build("resnet20", mean=(0.5,))
    assert build("wrn28-10", classes=3, mean=(0.5,), std=(0.5,)).mean.item() == 0.5
    torch.save(as_robustbench(resnet20(10)), tmp_path / "weights")
    with pytest.raises(ValueError, match="brings its own mean and std"):
        build("resnet20", tmp_path / "weights", mean=(0.5,), std=(0.5,))


@pytest.mark.parametrize(
    "wrap", [nn.Module.state_dict, as_augmix, as_robustbench, as_old_torchvision]
)
@pytest.mark.parametrize("kind", ["new", "old", "safetensors"])
def test_checkpoints_as_they_are_published(tmp_path, wrap, kind):
    net = shaken(resnet20(10))
    wrapped, path = wrap(net), tmp_path / "weights"
    if kind == "safetensors":
        save_file(wrapped.get("state_dict", wrapped), path)
    else:
        torch.save(wrapped, path, _use_new_zipfile_serialization=kind == "new")
    if wrap is not as_robustbench:
        assert same_weights(load_checkpoint(resnet20(10), path), net)
    inside = build("resnet20", path)
    assert same_weights(inside.model, net)
    assert not inside.training
    expected = 0.4 if wrap is as_robustbench else 0.4914  # CIFAR-10's, by its classes
    assert inside.mean[0].item() == pytest.approx(expected)


def test_a_normalisation_is_never_dropped(tmp_path):
    path, net = tmp_path / "w.pt", resnet20(10)
    torch.save(as_robustbench(net), path)
    with pytest.raises(ValueError, match=r"the network has no mu, sigma\. Load it into a holdfast"):
        load_checkpoint(resnet20(10), path)
    state = as_robustbench(net)
    torch.save({**state, "mu": torch.zeros(4)}, path)
    with pytest.raises(ValueError, match=r"its mean is \(4,\), expected 3 values"):
        build("resnet20", path)
    del state["sigma"]
    torch.save(state, path)
    with pytest.raises(ValueError, match="it lacks the std of its normalisation"):
        build("resnet20", path)


def test_a_network_without_normalisation_gets_that_of_its_checkpoint(tmp_path, monkeypatch):
    small = replace(NETWORKS["wrn28-10"], make=lambda classes: WideResNet(10, 1, classes))
    monkeypatch.setitem(NETWORKS, "wrn28-10", small)
    net = shaken(WideResNet(10, 1, 10))
    torch.save(as_robustbench(net), tmp_path / "w.pt")
    model = build("wrn28-10", tmp_path / "w.pt")
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(model(images), net((images - 0.4) / 0.2))
    torch.save(net.state_dict(), tmp_path / "w.pt")
    assert not isinstance(build("wrn28-10", tmp_path / "w.pt"), Normalized)


def test_a_state_of_our_own_is_read_back(tmp_path):
    model = holdfast.normalized(shaken(resnet20()), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    assert same_weights(build("resnet20", tmp_path / "model.safetensors"), model)


def test_augmix_calls_the_shortcut_otherwise(tmp_path):
    net = shaken(WideResNet(40, 2, 100))
    state = {k.replace("convShortcut", "conv_shortcut"): v for k, v in net.state_dict().items()}
    torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "w.pt")
    assert same_weights(build("wrn40-2", tmp_path / "w.pt").model, net)


def test_classes_are_those_of_the_checkpoint():
    assert build("resnet20", classes=7)(torch.rand(1, 3, 32, 32)).shape == (1, 7)
    assert isinstance(build("wrn40-2"), Normalized)
    with pytest.raises(ValueError, match=r"no network 'resnext2'\. Did you mean 'resnext29'"):
        build("resnext2")


def test_a_checkpoint_that_does_not_fit_is_named_by_key_and_shape(tmp_path):
    path = tmp_path / "weights.pt"
    state = resnet20(10).state_dict()
    torch.save(state, path)
    net = shaken(resnet20(100))
    before = {key: value.clone() for key, value in net.state_dict().items()}
    with pytest.raises(
        ValueError, match=r"fc\.weight is \(10, 64\), expected \(100, 64\), fc\.bias is \(10,\)"
    ):
        load_checkpoint(net, path)
    del state["conv1.weight"]
    torch.save({**state, "extra.weight": torch.zeros(1)}, path)
    with pytest.raises(
        ValueError,
        match=r"weights\.pt does not fit ResNetCifar: it lacks conv1\.weight; the network has no "
        r"extra\.weight",
    ):
        load_checkpoint(resnet20(10), path)
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


class Bomb:
    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return (os.mkdir, (self.folder,))


def test_bad_checkpoints_are_named_and_nothing_is_run(tmp_path):
    path, trace = tmp_path / "weights.pt", tmp_path / "executed"
    torch.save({"state_dict": {}, "x": Bomb(str(trace))}, path)
    with pytest.raises(ValueError, match="Nothing in it was run") as error:
        load_checkpoint(resnet20(), path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)
    assert not trace.exists()
    whole = tmp_path / "whole.pt"
    torch.save(resnet20().state_dict(), whole)
    for spoilt in (whole.read_bytes()[:5000], b"<!doctype html><p>Quota exceeded</p>", b""):
        path.write_bytes(spoilt)
        with pytest.raises(ValueError, match=re.escape(str(path))):
            load_checkpoint(resnet20(), path)
    save_file({"a": torch.zeros(3)}, tmp_path / "cut.safetensors")
    cut = (tmp_path / "cut.safetensors").read_bytes()[:-2]
    (tmp_path / "cut.safetensors").write_bytes(cut)
    with pytest.raises(ValueError, match=r"cut\.safetensors is not a checkpoint, or is cut short"):
        load_checkpoint(resnet20(), tmp_path / "cut.safetensors")
    torch.save([1, 2], path)
    with pytest.raises(ValueError, match="holds list; expected weights by name"):
        load_checkpoint(resnet20(), path)
    torch.save({"epoch": 3}, path)
    with pytest.raises(ValueError, match="holds no weights; it has epoch"):
        load_checkpoint(resnet20(), path)
    with pytest.raises(FileNotFoundError, match="There is no file"):
        load_checkpoint(resnet20(), tmp_path / "nix.pt")
