"""Other normalisations that a model may have been trained with, as changes to its images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.engine.checks import ROUNDING
from holdfast.models.normalization import NORMALIZATIONS, Normalized, Values, written

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
class Candidate:
    """A change to images that makes the model see what it would see after the advice."""

    name: str
    change: Callable[[Tensor], Tensor]
    advice: str


def find_wrappers(model: nn.Module) -> list[Normalized]:
    return [layer for layer in model.modules() if isinstance(layer, Normalized)]


def goes_negative(images: Tensor) -> bool:
    return float(images.min()) < -ROUNDING


def candidates(model: nn.Module, images: Tensor) -> Iterator[Candidate]:
    """Each usual change that the range of the images admits."""
    if images.ndim != 4:
        return
    channels = images.shape[1]
    wrapper = next(iter(find_wrappers(model)), None)
    usual = {
        name: (mean * channels, std * channels) if len(mean) == 1 else (mean, std)
        for name, (mean, std) in NORMALIZATIONS.items()
        if len(mean) in (1, channels)
    }
    own = None if wrapper is None else values_of(wrapper)
    if goes_negative(images):
        advice = TWICE_OR_NEVER if own is None else TWICE
        for name, values in [*usual.items(), *([] if own is None else [("its own", own)])]:
            yield Candidate(name, _undo(*values), advice)
        return
    for name, (mean, std) in usual.items():
        best = (
            f"These values ({name}) fit best of the usual ones; if you know those of the training, "
            "take them."
        )
        if own is None:
            yield Candidate(
                name,
                _apply(mean, std),
                "Images are not normalised at all: wrap the model, "
                f"holdfast.normalized(model, {written(mean)}, {written(std)}). {best}",
            )
        else:
            yield Candidate(
                name,
                _both(_apply(mean, std), _undo(*own)),
                "The normalisation inside the model does not fit its weights: replace its values, "
                f"{_replacement(model, mean, std)}. {best}",
            )
    if own is not None:
        yield Candidate("no normalisation", _undo(*own), TWICE_INSIDE)


def values_of(wrapper: Normalized) -> tuple[Values, Values]:
    return tuple(wrapper.mean.flatten().tolist()), tuple(wrapper.std.flatten().tolist())


def _replacement(model: nn.Module, mean: Values, std: Values) -> str:
    """How to put other values in the place of those inside: one more wrapper normalises twice."""
    if isinstance(model, Normalized):
        call = f"holdfast.normalized(model.model, {written(mean)}, {written(std)})"
    else:
        call = f"build(…, mean={written(mean)}, std={written(std)})"
    options = (
        f"--{name} {','.join(f'{value:.4g}' for value in values)}"
        for name, values in (("mean", mean), ("std", std))
    )
    return f"{call}, or {' '.join(options)} on the command line"


def _apply(mean: Values, std: Values) -> Callable[[Tensor], Tensor]:
    return lambda images: (images - _by_channel(mean)) / _by_channel(std)


def _undo(mean: Values, std: Values) -> Callable[[Tensor], Tensor]:
    """What normalisation by `mean` and `std` turns into the images."""
    return lambda images: images * _by_channel(std) + _by_channel(mean)


def _both(
    first: Callable[[Tensor], Tensor], then: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    return lambda images: then(first(images))


def _by_channel(values: Values) -> Tensor:
    return torch.tensor(values)[:, None, None]
