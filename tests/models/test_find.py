"""Models by a text: of ours, of torchvision and timm where they are, and errors where not."""

import enum
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from holdfast.cli.main import main
from holdfast.models import resnet20
from holdfast.models.find import find_model
from holdfast.models.normalization import Normalized


def test_a_network_of_ours_with_its_weights(tmp_path, capsys):
    net = resnet20(10)
    torch.save(net.state_dict(), tmp_path / "some.pt")
    found = find_model(f"resnet20:{tmp_path / 'some.pt'}")
    assert isinstance(found, Normalized)
    assert torch.equal(found.model.fc.weight, net.fc.weight)
    assert find_model("resnext29").model.classifier.out_features == 100
    assert main(["doctor", "--model", f"resnet20:{tmp_path / 'some.pt'}"]) == 0
    assert "64 features, 10 classes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("resnet20:nix.pt", "There is no file nix.pt"),
        ("resnext2", "Did you mean 'resnext29'?"),
        ("resnet20:", "--model is package.module:factory"),
        ("timm:", "--model is package.module:factory"),
    ],
)
def test_mistakes(place, message):
    with pytest.raises((ValueError, OSError), match=message.replace("?", r"\?")):
        find_model(place)


@pytest.mark.parametrize(
    ("package", "place"), [("torchvision", "torchvision:resnet50"), ("timm", "timm:x")]
)
def test_a_package_that_is_not_there_is_named(monkeypatch, package, place):
    for name in (package, f"{package}.models"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=f"needs the package {package}.*pip install {package}"):
        find_model(place)


class Weights(enum.Enum):
    V1 = (0.1, 0.2)
    V2 = (0.3, 0.4)
    DEFAULT = V2

    def transforms(self):
        mean, std = self.value
        return SimpleNamespace(mean=[mean] * 3, std=[std] * 3)


@pytest.fixture
def stand_ins(monkeypatch):
    """As much of torchvision and timm as is called."""

    def get_model(name, weights):
        if name == "offline":
            raise OSError("no route to host")
        return nn.Linear(3, 2)

    models = ModuleType("torchvision.models")
    models.list_models = lambda module: ["resnet50", "offline"]
    models.get_model_weights = lambda name: Weights
    models.get_model = get_model
    timm = ModuleType("timm")
    timm.is_model = lambda name: name == "vit"
    timm.list_models = lambda pretrained: ["vit"]

    def create_model(name, pretrained):
        assert pretrained
        net = nn.Linear(3, 2)
        net.pretrained_cfg = {"mean": (0.6,) * 3, "std": (0.7,) * 3}
        return net

    timm.create_model = create_model
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.models", models)
    monkeypatch.setitem(sys.modules, "timm", timm)


@pytest.mark.parametrize(
    ("place", "mean"),
    [("torchvision:resnet50", 0.3), ("torchvision:resnet50:V1", 0.1), ("timm:vit", 0.6)],
)
def test_other_packages_models_come_with_their_normalisation(stand_ins, place, mean):
    found = find_model(place)
    assert isinstance(found, Normalized) and not found.training
    assert found.mean.flatten().tolist() == pytest.approx([mean] * 3)


GIVEN = ((0.9,) * 3, (0.8,) * 3)


@pytest.mark.parametrize("place", ["torchvision:resnet50", "timm:vit", "resnet20"])
def test_a_given_normalisation_takes_its_place(stand_ins, place):
    found = find_model(place, GIVEN)
    assert found.mean.flatten().tolist() == pytest.approx([0.9] * 3)
    assert not isinstance(found.model, Normalized)


def test_a_given_normalisation_goes_around_a_model_that_has_none(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text(
        "from torch import nn\nimport holdfast\nbare = nn.Conv2d(3, 2, 1)\n"
        "done = nn.Sequential(holdfast.normalized(bare, (0.5,), (0.5,)))\n"
    )
    bare = find_model(f"{tmp_path / 'own.py'}:bare", GIVEN)
    assert bare.std.flatten().tolist() == pytest.approx([0.8] * 3)
    for place in (f"{tmp_path / 'own.py'}:done", "glyphs"):
        with pytest.raises(ValueError, match="normalises its input already: leave --mean"):
            find_model(place, GIVEN)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (
            "torchvision:resnet51",
            "torchvision has no classifier 'resnet51'. Did you mean 'resnet50'",
        ),
        ("torchvision:resnet50:V9", "has no weights 'V9'; it has V1, V2"),
        ("torchvision:offline", "Cannot load the weights of offline: no route to host"),
        ("timm:vitt", "timm has no model 'vitt'. Did you mean 'vit'"),
    ],
)
def test_names_that_other_packages_do_not_know(stand_ins, place, message):
    with pytest.raises(ValueError, match=message):
        find_model(place)
