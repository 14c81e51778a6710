"""Which normalisation classifies labelled images best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.engine.network import Network
from holdfast.explain.candidates import Candidate
from holdfast.explain.finding import Finding
from holdfast.source.agreement import find_mistake
from holdfast.util.progress import Advance, progress

BATCH = 64
# Of more images, only so many are taken, spread over all of them.
MOST = 2000

# Normalisations that differ by less are as good as the same.
POINT = 0.01
# Standard errors: to be sure that nothing is better by a point, and to say that something is.
SURE = 2.0
TO_ACCUSE = 3.0


def spread(count: int, most: int) -> list[int]:
    """At most so many places from end to end, since images are often sorted by class."""
    taken = min(count, most)
    return [place * count // taken for place in range(taken)]


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
        some = spread(len(images), MOST)
        return cls(images[some].detach().float().cpu(), numbers[some].long().cpu())


@torch.no_grad()
def check_accuracy(
    network: Network, labelled: Labelled, others: Sequence[Candidate]
) -> tuple[Finding | None, Finding | None]:
    """What labels say of the normalisation, and what is wrong with labels; the first is None
    where they can say nothing. Images lie in [0, 1]."""
    labels = labelled.labels
    with progress("Accuracy", len(labels) * (1 + len(others))) as advance:
        own, classes = _predict(network, labelled.images, None, advance)
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= classes:
            return None, Finding(
                "problem",
                f"Labels go from {low} to {high}, and the model's classes from 0 to {classes - 1}.",
            )
        changed = [_predict(network, labelled.images, other, advance)[0] for other in others]
    hits = own == labels
    best = max([own, *changed], key=lambda predicted: int((predicted == labels).sum()))
    mistake = find_mistake(labels, best, classes)
    if mistake is not None:
        return None, Finding("problem", mistake)
    rivals = [
        _Rival(other, *_difference(hits, predicted == labels))
        for other, predicted in zip(others, changed, strict=True)
    ]
    return _judge(hits, rivals) if rivals else None, None


@dataclass(frozen=True)
class _Rival:
    """Another normalisation: how much more accurate than that in use, and how sure that is."""

    candidate: Candidate
    gain: float
    error: float


def _difference(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    """Of accuracies on the same images, and its standard error, as if one more image differed: a
    few images on which nothing differs do not prove that nothing ever does."""
    apart = theirs.double() - ours.double()
    gain, count = float(apart.mean()), len(apart)
    return gain, (float(((apart - gain) ** 2).sum()) + 1) ** 0.5 / count


def _judge(hits: Tensor, rivals: Sequence[_Rival]) -> Finding:
    right = float(hits.double().mean())
    said = f"{right:.1%} of {len(hits)} images are classified as labelled"

    def named(chosen: Sequence[_Rival]) -> str:
        order = sorted(chosen, key=lambda rival: -rival.gain)
        return ", ".join(
            f"{rival.candidate.name} ({right + rival.gain:.1%} here)" for rival in order
        )

    if any(rival.gain > TO_ACCUSE * rival.error for rival in rivals):
        # That which is surely better need not be the best: it may only differ on fewer images.
        best = max(rivals, key=lambda rival: rival.gain)
        return Finding(
            "problem", f"{best.candidate.advice} ({said}; then {right + best.gain:.1%}.)"
        )
    open_ = [rival for rival in rivals if rival.gain + SURE * rival.error >= POINT]
    if open_:
        more = "Give more labelled images (on the command line, a higher --limit), or take"
        advice = f"{more if len(hits) < MOST else 'Take'} the values of the training."
        return Finding(
            "note",
            f"Cannot tell whether images are normalised as in training: {said}, and it is not "
            f"ruled out that other usual values are a point better: {named(open_)}. {advice}",
        )
    return Finding(
        "good", f"Images are normalised as in training: {said}, and no other usual way does better."
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
