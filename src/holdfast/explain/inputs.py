"""Whether images reach a model as they did in its training: normalised, and only once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.guard import ROUNDING, check_images
from holdfast.nets.normalized import NORMALIZATIONS, Normalized, Values
from holdfast.split import Network, at_least_float32
from holdfast.statistics import batch_norms

# Measured on CIFAR-100 nets: right images lie at 0.1 (at 0.4 where there are only four of them),
# raw or twice normalised ones at 5 to 10.
CLOSE = 0.5
FAR_BETTER = 4.0

TWICE = (
    "Images are normalised twice, before the model and inside it: feed them in [0, 1], as they "
    "were before."
)
TWICE_OR_NEVER = (
    "Images are normalised twice, or were not normalised in training: feed them in [0, 1], as they "
    "were before."
)
TWICE_INSIDE = "Images are normalised twice inside the model: leave one holdfast.normalized out."


@dataclass(frozen=True)
class Finding:
    """One thing found: all is well, worth knowing, or wrong."""

    level: Literal["good", "note", "problem"]
    text: str


@dataclass(frozen=True)
class Remedy:
    """Images that make the model see what it would see after a change, and the change."""

    images: Tensor
    advice: str


class _Reached(Exception):  # noqa: N818 (a signal, not an error)
    """The forward has come to the first batch norm layer, and need not go on."""


def find_wrappers(model: nn.Module) -> list[Normalized]:
    return [layer for layer in model.modules() if isinstance(layer, Normalized)]


def describe(wrapper: Normalized) -> str:
    mean, std = _values(wrapper)
    return f"mean {_written(mean)}, std {_written(std)}"


def check_inputs(network: Network, images: Tensor | None) -> list[Finding]:
    """What can be said of the images' range and normalisation."""
    wrappers = find_wrappers(network.model)
    found = [] if images is None else [_check_range(network, images, wrapped=bool(wrappers))]
    if any(find_wrappers(wrapper.model) for wrapper in wrappers):
        return [*found, Finding("problem", TWICE_INSIDE)]
    if images is None:
        return [_unchecked("no images were given")]
    layers = [one for one in batch_norms(network.model).values() if one.running_mean is not None]
    reached = _reach(network, layers, images)
    if reached is not None:
        return [*found, _compare(network, reached[0], images)]
    if wrappers and _goes_negative(images):
        return [*found, Finding("problem", TWICE)]
    return [*found, _unchecked("no batch norm layer has running statistics to compare with")]


def _goes_negative(images: Tensor) -> bool:
    return float(images.min()) < -ROUNDING


def _unchecked(reason: str) -> Finding:
    return Finding("note", f"Not checked whether images are normalised as in training: {reason}.")


def _check_range(network: Network, images: Tensor, *, wrapped: bool) -> Finding:
    low, high = (bound.item() for bound in images.aminmax())
    if wrapped and _goes_negative(images):
        text = f"Images lie in [{low:.4g}, {high:.4g}]; holdfast.normalized takes them in [0, 1]."
        return Finding("problem", text)
    try:
        check_images(images, (0.0, 1.0), convolutional=network.is_conv)
    except ValueError as error:
        return Finding("problem", str(error))
    return Finding("good", "Images lie within [0, 1], as adapt() expects.")


def _compare(network: Network, layer: _BatchNorm, images: Tensor) -> Finding:
    """Do the images fit the first batch norm layer as given, or far better in another form?"""
    name = next(name for name, one in batch_norms(network.model).items() if one is layer)
    if layer.running_mean is not None and not bool(layer.running_mean.any()):
        return _unchecked(f"{name} has the running statistics of a fresh layer")
    distance = _distance(network, layer, images)
    if distance <= CLOSE:
        return Finding(
            "good",
            f"Images fit the running statistics of {name}, the first batch norm layer: they are "
            "normalised as in training.",
        )
    if not _goes_negative(images) and float(images.max()) > 2:
        then = _compare(network, layer, images / 255)
        return replace(then, text=f"Once divided by 255: {then.text[0].lower()}{then.text[1:]}")
    tried = [
        (_distance(network, layer, remedy.images), remedy.advice)
        for remedy in _remedies(network, images)
    ]
    least, advice = min(tried, default=(distance, ""))
    if FAR_BETTER * least < distance:
        distances = f"Distance to {name}: {distance:.2g}; then {least:.2g}."
        return Finding("problem", f"{advice} ({distances})")
    return Finding(
        "note",
        f"Images fit the running statistics of {name} only roughly (distance {distance:.2g}; close "
        f"is below {CLOSE:g}), and no usual normalisation fits far better: are they clean and "
        "varied, and normalised like those of the training?",
    )


def _remedies(network: Network, images: Tensor) -> Iterator[Remedy]:
    """Each usual change that the range of the images admits."""
    if images.ndim != 4:
        return
    channels = images.shape[1]
    wrapper = next(iter(find_wrappers(network.model)), None)
    usual = {
        name: (mean * channels, std * channels) if len(mean) == 1 else (mean, std)
        for name, (mean, std) in NORMALIZATIONS.items()
        if len(mean) in (1, channels)
    }
    if _goes_negative(images):
        undone = [*usual.values(), *([] if wrapper is None else [_values(wrapper)])]
        advice = TWICE_OR_NEVER if wrapper is None else TWICE
        yield from (Remedy(_undo(images, *values), advice) for values in undone)
        return
    for name, (mean, std) in usual.items():
        right = (images - _by_channel(mean)) / _by_channel(std)
        call = f"holdfast.normalized(model, {_written(mean)}, {_written(std)})"
        if wrapper is None:
            yield Remedy(
                right,
                f"Images are not normalised at all: wrap the model, {call}. These values ({name}) "
                "fit best of the usual ones; if you know those of the training, take them.",
            )
        else:
            yield Remedy(
                _undo(right, *_values(wrapper)),
                f"The normalisation inside the model does not fit its weights: try {call}.",
            )
    if wrapper is not None:
        yield Remedy(_undo(images, *_values(wrapper)), TWICE_INSIDE)


def _undo(images: Tensor, mean: Values, std: Values) -> Tensor:
    """What normalisation by `mean` and `std` turns into the images."""
    return images * _by_channel(std) + _by_channel(mean)


def _values(wrapper: Normalized) -> tuple[Values, Values]:
    return tuple(wrapper.mean.flatten().tolist()), tuple(wrapper.std.flatten().tolist())


def _by_channel(values: Values) -> Tensor:
    return torch.tensor(values)[:, None, None]


def _written(values: Values) -> str:
    return f"({', '.join(f'{value:.4g}' for value in values)}{',' if len(values) == 1 else ''})"


def _distance(network: Network, layer: _BatchNorm, images: Tensor) -> float:
    """How far the input of a batch norm layer is from its running statistics: the symmetric
    Kullback-Leibler divergence of Gaussians, a mean over channels."""
    reached = _reach(network, [layer], images)
    if reached is None or layer.running_mean is None or layer.running_var is None:
        return math.inf
    values = at_least_float32(reached[1]).transpose(0, 1).flatten(1)
    # eps is a floor, for channels that are dead in both.
    var = values.var(1, correction=0) + layer.eps
    known = at_least_float32(layer.running_var) + layer.eps
    shift = (values.mean(1) - layer.running_mean) ** 2
    apart = (var / known + known / var - 2 + shift * (1 / var + 1 / known)) / 2
    return float(apart.mean())


@torch.no_grad()
def _reach(
    network: Network, layers: list[_BatchNorm], images: Tensor
) -> tuple[_BatchNorm, Tensor] | None:
    """Which of the layers runs first, and its input."""
    found: list[tuple[_BatchNorm, Tensor]] = []

    def stop(layer: Any, inputs: tuple[Tensor, ...]) -> None:
        found.append((layer, inputs[0]))
        raise _Reached

    hooks = [layer.register_forward_pre_hook(stop) for layer in layers]
    try:
        network.model(network.prepare(images))
    except _Reached:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None
