"""Models by a text: networks of our own, of torchvision and timm, and of anybody's code.

    glyphs                      the trained network of the embedded benchmark
    resnet20                    a network of ours, untrained; `resnet20:weights.pt` with weights
    torchvision:resnet50        pretrained; `torchvision:resnet50:IMAGENET1K_V1` names the weights
    timm:resnet50.a1_in1k       pretrained
    package.module:factory      what the factory returns, or a model itself
    path/to/file.py:factory     the same, out of a file

Those of torchvision and timm get their normalisation inside, as `holdfast.normalized` puts it; a
mean and a std that are given take its place, and go around a model that has none.
"""

from __future__ import annotations

import importlib
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from holdfast.models import glyphs
from holdfast.models.checkpoint import NORMALIZATION, load_weights, read_checkpoint
from holdfast.models.normalization import (
    NORMALIZATIONS,
    Normalization,
    Normalized,
    normalized,
    read_normalization,
    written,
)
from holdfast.models.resnets import ResNetCifar, resnet50, resnext29, wrn28_10, wrn40_2
from holdfast.util.imports import file_hash, import_code
from holdfast.util.words import listed, nearest

# Takes images as they are, until a checkpoint says otherwise.
AS_IS: Normalization = ((0.0,) * 3, (1.0,) * 3)
HALF: Normalization = ((0.5,) * 3, (0.5,) * 3)
# By the number of classes: the public ResNets of CIFAR-10 were trained with other values.
CIFAR = {100: NORMALIZATIONS["CIFAR-100"], 10: NORMALIZATIONS["CIFAR-10 with std 0.2"]}


@dataclass(frozen=True)
class Network:
    """How to build a network, and what its public checkpoints expect.

    by_classes: their normalisation, where it differs with the number of classes.
    """

    make: Callable[[int], nn.Module]
    classes: int
    head: str
    normalization: Normalization | None
    by_classes: Mapping[int, Normalization] = field(default_factory=dict)


def _cifar_resnet(n: int) -> Network:
    return Network(lambda classes: ResNetCifar(n, classes), 100, "fc", CIFAR[100], CIFAR)


NETWORKS = {
    **{f"resnet{6 * n + 2}": _cifar_resnet(n) for n in (3, 5, 7, 9, 18)},
    "resnext29": Network(resnext29, 100, "classifier", HALF),  # AugMix's
    "wrn40-2": Network(wrn40_2, 100, "fc", HALF),  # AugMix's
    "wrn28-10": Network(wrn28_10, 10, "fc", None),  # RobustBench's
    "resnet50": Network(resnet50, 1000, "fc", NORMALIZATIONS["ImageNet"]),  # torchvision's
}


def build(
    name: str,
    weights: str | Path | None = None,
    *,
    classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """A network by name, in eval mode, for images in [0, 1]; with the weights of a checkpoint, and
    as many classes as that has.

    mean, std: of the input normalisation that the weights were trained with; by default, that of
        the public checkpoints of this network and this number of classes.
    """
    if name not in NETWORKS:
        raise ValueError(
            f"There is no network {name!r}.{nearest(name, NETWORKS)} There are {listed(NETWORKS)}."
        )
    if (mean is None) != (std is None):
        raise ValueError("mean and std come together: give both, or neither.")
    network = NETWORKS[name]
    tensors = None if weights is None else read_checkpoint(weights)
    head = None if tensors is None else tensors.get(f"{network.head}.weight")
    if classes is None:
        classes = network.classes if head is None or head.ndim != 2 else len(head)
    net = network.make(classes)
    brings = tensors is not None and not NORMALIZATION.keys().isdisjoint(tensors)
    normalization: tuple[Sequence[float], Sequence[float]] | None
    normalization = network.by_classes.get(classes, network.normalization)
    if mean is not None and std is not None:
        if brings:
            raise ValueError(f"{weights} brings its own mean and std: leave those given out.")
        normalization = mean, std
    elif brings:
        normalization = normalization or AS_IS
    elif tensors is not None and network.by_classes and classes not in network.by_classes:
        # Weights for another number of classes were trained on other images.
        taken = [written(values) for values in normalization or ()]
        warnings.warn(
            f"{name} has no public weights for {classes} classes, so that their normalisation is "
            f"not known: mean {taken[0]} and std {taken[1]} are taken. Give those of the training: "
            "mean=…, std=… (--mean and --std on the command line).",
            stacklevel=2,
        )
    if normalization is not None:
        net = normalized(net, *normalization)
    if tensors is not None:
        load_weights(net, tensors, str(weights))
    return net.eval()


FORMS = (
    "package.module:factory, path/to/file.py:factory, torchvision:NAME, timm:NAME, or NAME or "
    f"NAME:WEIGHTS with one of {listed(NETWORKS)}, or glyphs"
)


def find_model(place: str, normalization: Normalization | None = None) -> nn.Module:
    """The model that a text names; `normalization`: the mean and std to use, if not its own."""
    first, _, rest = place.partition(":")
    if first in NETWORKS and not place.endswith(":"):
        mean, std = normalization or (None, None)
        return build(first, rest or None, mean=mean, std=std)
    like: object = None
    if first == "torchvision" and rest:
        name, _, weights = rest.partition(":")
        model, like = _from_torchvision(name, weights or "DEFAULT")
    elif first == "timm" and rest:
        model, like = _from_timm(rest)
    else:
        model = glyphs.model() if place == "glyphs" else _from_code(place)
        if normalization is None:
            return model
        if any(isinstance(layer, Normalized) for layer in model.modules()):
            raise ValueError(f"{place} normalises its input already: leave --mean and --std out.")
    mean, std = normalization or read_normalization(like)
    return normalized(model, mean, std).eval()


def hash_of_code(place: str) -> str | None:
    """SHA-256 of the file that a model of anybody's code comes from; None of any other."""
    module, colon, _ = place.rpartition(":")
    if not colon or place.partition(":")[0] in (*NETWORKS, "torchvision", "timm"):
        return None
    return file_hash(import_code(module).__name__)


def _from_torchvision(name: str, weights: str) -> tuple[nn.Module, object]:
    models = _need("torchvision.models", "torchvision")
    names = models.list_models(module=models)
    if name not in names:
        raise ValueError(f"torchvision has no classifier {name!r}.{nearest(name, names)}")
    choices = models.get_model_weights(name)
    try:
        chosen = choices[weights]
    except KeyError:
        raise ValueError(
            f"torchvision's {name} has no weights {weights!r}; it has "
            f"{listed(choice.name for choice in choices)}."
        ) from None
    return _fetch(name, models.get_model, name, weights=chosen), chosen


def _from_timm(name: str) -> tuple[nn.Module, object]:
    timm = _need("timm", "timm")
    if not timm.is_model(name):
        names = timm.list_models(pretrained=True)
        raise ValueError(f"timm has no model {name!r}.{nearest(name, names)}")
    model = _fetch(name, timm.create_model, name, pretrained=True)
    return model, model


def _fetch(name: str, make: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return make(*arguments, **options)
    except (OSError, RuntimeError) as error:  # no network, or a damaged download
        raise ValueError(f"Cannot load the weights of {name}: {error}") from error


def _need(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"This model needs the package {package}, which is not there or does not fit this "
            f"torch ({error}): pip install {package}"
        ) from None
    except (OSError, RuntimeError) as error:  # a build for another torch
        raise ValueError(
            f"The package {package} is installed, but does not work with this torch ({error}): "
            "install the build made for it."
        ) from None


def _from_code(place: str) -> nn.Module:
    module_name, colon, name = place.rpartition(":")
    if not (module_name and colon and name):
        close = nearest(place.partition(":")[0], NETWORKS)
        raise ValueError(f"--model is {FORMS}; not {place!r}.{close}")
    module = import_code(module_name)
    try:
        model = operator.attrgetter(name)(module)
    except AttributeError:
        names = [attribute for attribute in vars(module) if not attribute.startswith("_")]
        raise ValueError(
            f"{module_name} has no {name!r}.{nearest(name, names)} It has "
            f"{listed(names) or 'nothing'}."
        ) from None
    if not isinstance(model, nn.Module) and callable(model):
        try:
            model = model()
        except Exception as error:
            raise ValueError(f"{place}() failed: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"{place} gives {type(model).__name__}, not a torch.nn.Module.")
    return model
