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
from typing import Any

from torch import nn

from holdfast.models import glyphs
from holdfast.models.normalization import Normalization, Normalized, normalized, read_normalization
from holdfast.models.zoo import NETWORKS, build
from holdfast.util.imports import file_hash, import_code
from holdfast.util.words import listed, nearest

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
    where, colon, _ = place.rpartition(":")
    if not colon or place.partition(":")[0] in (*NETWORKS, "torchvision", "timm"):
        return None
    return file_hash(import_code(where).__name__)


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
            f"{listed(each.name for each in choices)}."
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
    where, colon, name = place.rpartition(":")
    if not (where and colon and name):
        close = nearest(place.partition(":")[0], NETWORKS)
        raise ValueError(f"--model is {FORMS}; not {place!r}.{close}")
    module = import_code(where)
    try:
        model = operator.attrgetter(name)(module)
    except AttributeError:
        names = [attribute for attribute in vars(module) if not attribute.startswith("_")]
        raise ValueError(
            f"{where} has no {name!r}.{nearest(name, names)} It has {listed(names) or 'nothing'}."
        ) from None
    if not isinstance(model, nn.Module) and callable(model):
        try:
            model = model()
        except Exception as error:
            raise ValueError(f"{place}() failed: {type(error).__name__}: {error}") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"{place} gives {type(model).__name__}, not a torch.nn.Module.")
    return model
