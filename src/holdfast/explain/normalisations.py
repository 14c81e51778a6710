"""Other normalisations that a model may have been trained with, as changes to its images, and which
of them classifies labelled images best."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.engine.checks import ROUNDING
from holdfast.engine.network import Network
from holdfast.explain import Finding
from holdfast.models.normalization import NORMALIZATIONS, Normalized, Values, written
from holdfast.source.agreement import find_mistake
from holdfast.util.progress import Advance, progress

TWICE = (
    "Images are normalised twice, before the model and inside it: feed them in [0, 1], as they "
    "were before."
)
TWICE_OR_NEVER = (
    "Images are normalised twice, or were not normalised in training: feed them in [0, 1], as they "
    "were before."
)
TWICE_INSIDE = "Images are normalised twice inside the model: leave one holdfast.normalized out."


BATCH = 64
# At most so many images are taken, spread over all of them.
MOST = 2000

# Normalisations that differ by less are as good as the same.
POINT = 0.01
# Standard errors: to be sure that nothing is better by a point, and to say that something is.
SURE = 2.0
TO_ACCUSE = 3.0


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
        for name, values in (usual | ({} if own is None else {"its own": own})).items():
            yield Candidate(name, _undo(*values), advice)
        return
    for name, (mean, std) in usual.items():
        if own is None:
            change = _apply(mean, std)
            call = f"holdfast.normalized(model, {written(mean)}, {written(std)})"
            advice = f"Images are not normalised at all: wrap the model, {call}."
        else:
            change = _both(_apply(mean, std), _undo(*own))
            advice = (
                "The normalisation inside the model does not fit its weights: replace its values, "
                f"{_replacement(model, mean, std)}."
            )
        best = f"These values ({name}) fit best of the usual ones"
        known = "if you know those of the training, take them"
        yield Candidate(name, change, f"{advice} {best}; {known}.")
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


# What labels say.


def spread(count: int, most: int) -> list[int]:
    """At most so many places from end to end, since images are often sorted by class."""
    taken = min(count, most)
    return [step * count // taken for step in range(taken)]


@dataclass(frozen=True)
class Labelled:
    """Images and what they show."""

    images: Tensor
    labels: Tensor

    @classmethod
    def of(cls, images: Tensor, labels: Sequence[int] | Tensor) -> Labelled:
        numbers = torch.as_tensor(labels)
        if numbers.is_floating_point() or numbers.shape != images.shape[:1]:
            raise ValueError(
                f"labels are {len(images)} whole numbers, one for each image, not "
                f"{numbers.dtype} of shape {tuple(numbers.shape)}."
            )
        chosen = spread(len(images), MOST)
        return cls(images[chosen].detach().float().cpu(), numbers[chosen].long().cpu())


@torch.no_grad()
def check_accuracy(
    network: Network, labelled: Labelled, tried: Sequence[Candidate]
) -> tuple[Finding | None, Finding | None]:
    """What labels say of the normalisation, and what is wrong with labels; the first is None
    where they can say nothing. Images lie in [0, 1]."""
    labels = labelled.labels
    with progress("Accuracy", len(labels) * (1 + len(tried))) as advance:
        own, classes = _predict(network, labelled.images, None, advance)
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= classes:
            return None, Finding(
                "problem",
                f"Labels go from {low} to {high}, and the model's classes from 0 to {classes - 1}.",
            )
        changed = [_predict(network, labelled.images, candidate, advance)[0] for candidate in tried]
    hits = own == labels
    best = max([own, *changed], key=lambda predicted: int((predicted == labels).sum()))
    mistake = find_mistake(labels, best, classes)
    if mistake is not None:
        return None, Finding("problem", mistake)
    rivals = [
        _Rival(candidate, *_difference(hits, predicted == labels))
        for candidate, predicted in zip(tried, changed, strict=True)
    ]
    return _judge(hits, rivals) if rivals else None, None


@dataclass(frozen=True)
class _Rival:
    """Another normalisation: how much more accurate than that in use, and how sure that is."""

    candidate: Candidate
    gain: float
    error: float


def _difference(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """The difference of accuracies on the same images, and its standard error as if one more image
    differed: a few images on which nothing differs do not prove that nothing ever does."""
    apart = theirs.double() - ours.double()
    gain, count = float(apart.mean()), len(apart)
    return gain, (float(((apart - gain) ** 2).sum()) + 1) ** 0.5 / count


def _judge(hits: Tensor, rivals: Sequence[_Rival]) -> Finding:
    right = float(hits.double().mean())
    result = f"{right:.1%} of {len(hits)} images are classified as labelled"
    ranked = sorted(rivals, key=lambda rival: -rival.gain)
    if any(rival.gain > TO_ACCUSE * rival.error for rival in rivals):
        # That which is surely better need not be the best: it may only differ on fewer images.
        advice, then = ranked[0].candidate.advice, right + ranked[0].gain
        return Finding("problem", f"{advice} ({result}; then {then:.1%}.)")
    not_ruled_out = ", ".join(
        f"{rival.candidate.name} ({right + rival.gain:.1%} here)"
        for rival in ranked
        if rival.gain + SURE * rival.error >= POINT
    )
    if not_ruled_out:
        more = "Give more labelled images (on the command line, a higher --limit), or take"
        advice = f"{more if len(hits) < MOST else 'Take'} the values of the training."
        return Finding(
            "note",
            f"Cannot tell whether images are normalised as in training: {result}, and it is not "
            f"ruled out that other usual values are a point better: {not_ruled_out}. {advice}",
        )
    return Finding(
        "good",
        f"Images are normalised as in training: {result}, and no other usual way does better.",
    )


def _predict(
    network: Network, images: Tensor, candidate: Candidate | None, advance: Advance
) -> tuple[Tensor, int]:
    predicted, classes = [], 0
    for batch in torch.split(images, BATCH):
        shown = batch if candidate is None else candidate.change(batch)
        logits = network(network.prepare(shown))[1]
        predicted.append(logits.argmax(1).cpu())
        classes = logits.shape[1]
        advance(len(batch))
    return torch.cat(predicted), classes
