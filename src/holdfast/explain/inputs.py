"""Whether images reach a model as they did in its training: normalised, and only once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.checks import check_images
from holdfast.engine.network import Network, at_least_float32
from holdfast.engine.norms import batch_norms
from holdfast.explain import Finding
from holdfast.explain.normalisations import (
    TWICE,
    TWICE_INSIDE,
    Candidate,
    Labelled,
    candidates,
    check_accuracy,
    find_wrappers,
    goes_negative,
    values_of,
)
from holdfast.models.normalization import Normalized, written
from holdfast.util.words import enumerated

# Measured on CIFAR-100 nets: right images lie at 0.1 (at 0.4 where there are only four of them),
# raw or twice normalised ones at 5 to 10.
CLOSE = 0.5
FAR_BETTER = 4.0

# Normalisations under which fewer predictions differ are as good as the same: measured on
# ResNet-20, ResNet-56 and EfficientNet-Lite0, accuracy differs by a third of that at most.
SAME = 0.02


class _Reached(Exception):  # noqa: N818 (a signal, not an error)
    """The forward has come to the first batch norm layer, and need not go on."""


def describe(wrapper: Normalized) -> str:
    mean, std = values_of(wrapper)
    return f"mean {written(mean)}, std {written(std)}"


def check_inputs(
    network: Network, images: Tensor | None, labelled: Labelled | None = None
) -> list[Finding]:
    """What can be said of the images' range and normalisation, and of their labels."""
    wrappers = find_wrappers(network.model)
    findings = [] if images is None else [_check_range(network, images, wrapped=bool(wrappers))]
    if any(find_wrappers(wrapper.model) for wrapper in wrappers):
        return [*findings, Finding("problem", TWICE_INSIDE)]
    if images is None:
        return [_unchecked("no images were given")]
    judged = None
    if labelled is not None and findings[0].level == "good":
        judged, mistake = check_accuracy(network, labelled, list(candidates(network.model, images)))
        findings += [] if mistake is None else [mistake]
        if judged is not None and judged.level != "note":
            return [*findings, judged]
    by_statistics = _check_statistics(network, images, wrapped=bool(wrappers))
    # Where accuracy does not decide, statistics may rule out all other normalisations.
    return [*findings, by_statistics if judged is None or by_statistics.level == "good" else judged]


def _check_statistics(network: Network, images: Tensor, *, wrapped: bool) -> Finding:
    layers = [
        layer for layer in batch_norms(network.model).values() if layer.running_mean is not None
    ]
    reached = _reach(network, layers, images)
    if reached is not None:
        return _compare(network, reached[0], images)
    if wrapped and goes_negative(images):
        return Finding("problem", TWICE)
    return _unchecked(
        "no batch norm layer has running statistics to compare with. With labels=… accuracy tells"
    )


def _unchecked(reason: str) -> Finding:
    return Finding("note", f"Not checked whether images are normalised as in training: {reason}.")


def _check_range(network: Network, images: Tensor, *, wrapped: bool) -> Finding:
    low, high = (bound.item() for bound in images.aminmax())
    if wrapped and goes_negative(images):
        text = f"Images lie in [{low:.4g}, {high:.4g}]; holdfast.normalized takes them in [0, 1]."
        return Finding("problem", text)
    try:
        check_images(images, (0.0, 1.0), convolutional=network.is_conv)
    except ValueError as error:
        return Finding("problem", str(error))
    return Finding("good", "Images lie within [0, 1], as adapt() expects.")


def _compare(network: Network, layer: _BatchNorm, images: Tensor) -> Finding:
    """Do the images fit the first batch norm layer as given, or far better in another form?"""
    name = next(name for name, norm in batch_norms(network.model).items() if norm is layer)
    if layer.running_mean is not None and not bool(layer.running_mean.any()):
        return _unchecked(f"{name} has the running statistics of a fresh layer")
    distance, negative = _distance(network, layer, images), goes_negative(images)
    rivals = list(candidates(network.model, images))
    if distance <= CLOSE:
        return _tell_apart(network, layer, name, images, rivals)
    if not negative and float(images.max()) > 2:
        then = _compare(network, layer, images / 255)
        return replace(then, text=f"Once divided by 255: {then.text[0].lower()}{then.text[1:]}")
    tried = {rival.name: _distance(network, layer, rival.change(images)) for rival in rivals}
    best = min(rivals, key=lambda rival: tried[rival.name], default=None)
    if best is not None and FAR_BETTER * tried[best.name] < distance:
        near = [n for n, apart in tried.items() if apart <= CLOSE and n != best.name]
        also = f" {enumerated(near)} would fit as well." if near and not negative else ""
        distances = f"Distance to {name}: {distance:.2g}; then {tried[best.name]:.2g}."
        return Finding("problem", f"{best.advice}{also} ({distances})")
    return Finding(
        "note",
        f"Images fit the running statistics of {name} only roughly (distance {distance:.2g}; close "
        f"is below {CLOSE:g}), and no usual normalisation fits far better: are they clean and "
        "varied, and normalised like those of the training?",
    )


def _tell_apart(
    network: Network, layer: _BatchNorm, name: str, images: Tensor, tried: Sequence[Candidate]
) -> Finding:
    """Images fit: does another usual normalisation fit as well, under which the model predicts
    something else? Which of them fits best does not say which is right: a training augments."""
    fit = f"Images fit the running statistics of {name}, the first batch norm layer"
    if goes_negative(images):
        return Finding(
            "note",
            f"{fit}; but whether by the very values of the training is not checked while they are "
            "normalised outside the model.",
        )
    own = _labels(network, images)
    # With so few images, a single one is a larger share than SAME.
    few = len(images) * SAME < 1
    rivals = []
    for candidate in tried:
        changed = candidate.change(images)
        if torch.allclose(changed, images, atol=1e-4) or _distance(network, layer, changed) > CLOSE:
            continue
        share = float((_labels(network, changed) != own).double().mean())
        if few or share > SAME:
            rivals.append(f"{candidate.name} ({share:.0%} of predictions change)")
    if not rivals:
        return Finding(
            "good", f"{fit}, as no other usual way does: they are normalised as in training."
        )
    return Finding(
        "note",
        f"Cannot tell whether images are normalised as in training: they fit the running "
        f"statistics of {name}, and so they would by {', '.join(rivals)}. Take the values of the "
        f"training, or pass {'more images and ' * few}labels=…, so that accuracy decides.",
    )


@torch.no_grad()
def _labels(network: Network, images: Tensor) -> Tensor:
    return network(network.prepare(images))[1].argmax(1)


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
    reached: list[tuple[_BatchNorm, Tensor]] = []

    def stop(layer: Any, inputs: tuple[Tensor, ...]) -> None:
        reached.append((layer, inputs[0]))
        raise _Reached

    hooks = [layer.register_forward_pre_hook(stop) for layer in layers]
    try:
        network.model(network.prepare(images))
    except _Reached:
        pass
    finally:
        for hook in hooks:
            hook.remove()
    return reached[0] if reached else None
