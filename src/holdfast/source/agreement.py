"""Whether labels are numbered as in a model's training: not shifted, permuted, or of other images.

All is told from the labels of some images, and from the classes that the model takes them for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from holdfast.util.words import listed

# With fewer images too little is known to say anything; and a mistake has to show on so many.
ENOUGH = 50
SHOWN = 10

# Agreement beyond chance, as a share of what is possible, below which a model knows nothing of the
# labels (Cohen's kappa). A net of 68 % on 100 classes has 0.68.
NONE = 0.1

# A shift is said of classes from one on to the last, if they are so many.
CLASSES = 3


def find_mistake(labels: Tensor, predicted: Tensor, classes: int) -> str | None:
    """What is wrong with the labels and what to do, or None where nothing seems to be."""
    if len(labels) < ENOUGH:
        return None
    right = float((labels == predicted).double().mean())
    frequencies = [torch.bincount(x, minlength=classes) / len(x) for x in (labels, predicted)]
    chance = float((frequencies[0] * frequencies[1]).sum())
    result = f"The model takes {right:.1%} of {len(labels)} images for what their labels say"
    cause = _find_shift(labels, predicted, classes) or _find_permutation(labels, predicted, classes)
    if cause is not None:
        return f"{result}. {cause}"
    if right - chance < NONE * (1 - chance):
        return (
            f"{result}, and chance gives {chance:.1%}. Are labels numbered as in its training, are "
            "these images of its kind, normalised as in training (ask holdfast.doctor), and are "
            "its weights trained ones?"
        )
    return None


def _find_shift(labels: Tensor, predicted: Tensor, classes: int) -> str | None:
    """A class folder too few or too many moves the labels of all that are sorted behind it."""
    own = _from_each_on(labels[labels == predicted], classes)
    total = _from_each_on(labels, classes)
    for step in (1, -1):
        moved = _from_each_on(labels[labels + step == predicted], classes)
        first = int((moved - own).argmax())
        count, shifted, still = (int(counts[first]) for counts in (total, moved, own))
        known = len(torch.unique(labels[labels >= first]))
        if known >= CLASSES and shifted >= max(SHOWN, count / 4, 2 * still):
            sign, cause = ("+", "missing") if step > 0 else ("−", "too many")
            return (
                f"Labels look shifted by one from class {first} on: images with a label k are "
                f"taken for k {sign} 1 ({shifted / count:.0%} of them; {still / count:.0%} for k). "
                f"Probably a class folder is {cause}, or one side counts classes from 1: number "
                "the labels as in the model's training."
            )
    return None


def _from_each_on(labels: Tensor, classes: int) -> Tensor:
    """How many labels there are of each class and of all behind it."""
    return torch.bincount(labels, minlength=classes).flip(0).cumsum(0).flip(0)


def _find_permutation(labels: Tensor, predicted: Tensor, classes: int) -> str | None:
    """Each label may stand for the class that its images are mostly taken for. One half of each
    label's images says which, and the other whether that is true."""
    order = labels.argsort(stable=True)
    half, other_half = order[::2], order[1::2]
    pairs, counts = torch.unique(labels[half] * classes + predicted[half], return_counts=True)
    pairs = pairs[counts.argsort()]
    means = torch.full((classes,), -1)
    # One after the other, so that of each label the most frequent pair is the last.
    for label, meaning in zip((pairs // classes).tolist(), (pairs % classes).tolist(), strict=True):
        means[label] = meaning
    known = (means >= 0).nonzero().flatten()
    distinct = len(torch.unique(means[known]))
    right = float((labels[other_half] == predicted[other_half]).double().mean())
    mapped = float((means[labels[other_half]] == predicted[other_half]).double().mean())
    better = (mapped - right) * len(other_half)
    if mapped < 2 * right or better < SHOWN or distinct < 0.8 * len(known):
        return None
    permuted = known[means[known] != known]
    return (
        f"Labels look permuted: in another order of the classes it would be {mapped:.0%} at "
        f"least. Images with the labels {listed(permuted[:4].tolist())} are mostly taken for "
        f"{listed(means[permuted[:4]].tolist())}: number the labels as in the model's training."
    )
