"""Whether images reach a model as they did in its training: normalised, and only once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.guard import check_images
from holdfast.normalized import Normalized
from holdfast.split import Network, at_least_float32
from holdfast.statistics import batch_norms

Values = tuple[float, ...]

NORMALIZATIONS: dict[str, tuple[Values, Values]] = {
    "ImageNet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR": ((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761)),
    "0.5": ((0.5,), (0.5,)),
}

# Measured on CIFAR-100 nets: right images lie at 0.1 (at 0.4 where there are only four of them),
# raw or twice normalised ones at 5 to 10.
CLOSE = 0.5
FAR_BETTER = 4.0

TWICE = "Images are normalised twice"
BEFORE_AND_INSIDE = (
    f"{TWICE}, before the model and inside it: feed them in [0, 1], as they were before."
)


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
    nested = any(find_wrappers(wrapper.model) for wrapper in wrappers)
    inside = [Finding("problem", f"{TWICE} inside the model: leave one holdfast.normalized out.")]
    if images is None:
        return [*(inside if nested else []), _unchecked("no images were given")]
    found = [_check_range(network, images)]
    seen = _first_batch_norm(network, images)
    if seen is not None:
        return [*found, _compare(network, images, *seen)]
    if nested:
        found += inside
    elif wrappers and float(images.min()) < 0:
        found.append(Finding("problem", BEFORE_AND_INSIDE))
    else:
        found.append(_unchecked("no batch norm layer has running statistics to compare with"))
    return found


def _unchecked(reason: str) -> Finding:
    return Finding("note", f"Not checked whether images are normalised as in training: {reason}.")


def _check_range(network: Network, images: Tensor) -> Finding:
    try:
        check_images(images, (0.0, 1.0), convolutional=network.is_conv)
    except ValueError as error:
        return Finding("problem", str(error))
    low, high = (bound.item() for bound in images.aminmax())
    return Finding("good", f"Images lie in [{low:.3g}, {high:.3g}], within [0, 1].")


def _compare(network: Network, images: Tensor, layer: _BatchNorm, given: float) -> Finding:
    """Do the images fit the first batch norm layer as given, or far better in another form?"""
    name = next(name for name, one in batch_norms(network.model).items() if one is layer)
    if layer.running_mean is not None and not bool(layer.running_mean.any()):
        return _unchecked(f"{name} has the running statistics of a fresh layer")
    if given <= CLOSE:
        return Finding(
            "good",
            f"Images as given fit the running statistics of {name}, the first batch norm layer: "
            "they are normalised as in training.",
        )
    best, advice = given, ""
    for remedy in _remedies(network, images):
        seen = _first_batch_norm(network, remedy.images)
        if seen is not None and seen[1] < best:
            best, advice = seen[1], remedy.advice
    if FAR_BETTER * best < given:
        return Finding("problem", f"{advice} (Distance to {name}: {given:.2g}, then {best:.2g}.)")
    return Finding(
        "note",
        f"Images fit the running statistics of {name} only roughly (distance {given:.2g}, close is "
        f"below {CLOSE:g}), and no usual normalisation fits far better: are they clean images, "
        "normalised like those of the training?",
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
    if float(images.min()) < 0:
        if wrapper is not None:
            usual["inside"] = _values(wrapper)
        for mean, std in usual.values():
            yield Remedy(images * _by_channel(std) + _by_channel(mean), BEFORE_AND_INSIDE)
        return
    divide = ""
    if float(images.max()) > 2:
        divide = "divide them by 255, and "
        images = images / 255
        yield Remedy(images, "Images lie in 0–255, but the model takes [0, 1]: divide by 255.")
    for name, (mean, std) in usual.items():
        right = (images - _by_channel(mean)) / _by_channel(std)
        call = f"holdfast.normalized(model, {_written(mean)}, {_written(std)})"
        if wrapper is None:
            yield Remedy(
                right,
                f"Images are not normalised at all: {divide}wrap the model, {call}. These values "
                f"({name}) fit best of the usual ones; those of the training are better still.",
            )
        else:
            yield Remedy(
                _through(wrapper, right),
                f"The normalisation inside the model does not fit its weights: {divide}try {call}.",
            )
    if wrapper is not None:
        yield Remedy(
            _through(wrapper, images),
            f"{TWICE} inside the model: {divide}leave one holdfast.normalized out.",
        )


def _through(wrapper: Normalized, right: Tensor) -> Tensor:
    """What the wrapper turns into `right`."""
    mean, std = _values(wrapper)
    return right * _by_channel(std) + _by_channel(mean)


def _values(wrapper: Normalized) -> tuple[Values, Values]:
    return tuple(wrapper.mean.flatten().tolist()), tuple(wrapper.std.flatten().tolist())


def _by_channel(values: Values) -> Tensor:
    return torch.tensor(values)[:, None, None]


def _written(values: Values) -> str:
    return f"({', '.join(f'{value:.4g}' for value in values)}{',' if len(values) == 1 else ''})"


@torch.no_grad()
def _first_batch_norm(network: Network, images: Tensor) -> tuple[_BatchNorm, float] | None:
    """The batch norm layer that runs first, and how far its input is from its statistics.

    The distance is the symmetric Kullback-Leibler divergence of Gaussians, a mean over channels.
    """
    found: list[tuple[_BatchNorm, Tensor]] = []

    def stop(layer: Any, inputs: tuple[Tensor, ...]) -> None:
        found.append((layer, inputs[0]))
        raise _Reached

    layers = [one for one in batch_norms(network.model).values() if one.running_mean is not None]
    hooks = [layer.register_forward_pre_hook(stop) for layer in layers]
    try:
        network.model(network.prepare(images))
    except _Reached:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    if not found:
        return None
    layer, entered = found[0]
    values = at_least_float32(entered).transpose(0, 1).flatten(1)
    assert layer.running_mean is not None and layer.running_var is not None
    # eps is also the floor of the variances here, for channels that are dead in both.
    var, known = values.var(1) + layer.eps, at_least_float32(layer.running_var) + layer.eps
    shift = (values.mean(1) - layer.running_mean) ** 2
    apart = (var / known + known / var - 2 + shift * (1 / var + 1 / known)) / 2
    return layer, float(apart.mean())
