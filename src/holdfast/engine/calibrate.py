"""What an adapter's answers are worth before it has learnt, by labelled images under drift."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby

import torch
from torch import Tensor

from holdfast.engine.estimators import Calibration, Measured
from holdfast.engine.last import Answer
from holdfast.engine.reference import Reference
from holdfast.source.loaders import CLEAN, DriftedBatch

# Images of a batch by label that has a few classes, however few images of each there are.
FEW = 16


def calibrate(
    predict: Callable[[Tensor], Answer], reference: Reference, batches: Iterable[DriftedBatch]
) -> Calibration:
    """Each batch as it comes, and what streams make of it: sorted by label, and mixed with others.

    Of these the first tells what drift costs, the others what batch statistics cost without any.
    """
    rows, groups, of_few, images_of = list[Tensor](), list[int](), list[bool](), list[Tensor]()
    kinds = {CLEAN: 0}
    for images, labels, domain, few in rearranged(batches):
        if len(images) < 2:
            continue  # many methods have no answer to one image alone
        answer, seen = predict(images), reference(images)
        measured, group = Measured.of(answer, seen), _number(domain, kinds)
        both = (answer.logits, seen.logits)
        own, frozen = ((each.argmax(1).cpu() == labels).double() for each in both)
        for kind, columns in zip(seen.kinds, measured.kinds, strict=True):
            accuracies = torch.stack([own[kind.images].mean(), frozen[kind.images].mean()])
            rows.append(torch.cat([accuracies, columns]))
            groups.append(group)
            of_few.append(few)
        if few:
            continue
        image = measured.confidences, measured.entropies, own, torch.full_like(own, group)
        images_of.append(torch.stack(image))
    found = Calibration(
        torch.stack(rows) if rows else torch.zeros(0, 0),
        torch.tensor(groups),
        torch.tensor(of_few),
        torch.cat(images_of, 1) if rows else torch.zeros(4, 0),
    )
    if not bool((found.groups == 0).any()) or len(kinds) < 2:
        raise ValueError(
            "drifted=… gave no clean batch, or nothing but clean ones, to calibrate health with: "
            "give what holdfast.data.holdout.drifted(loader) makes of labelled source images, or "
            "batches of (images, labels, kind) of which some are of the kind 'clean'."
        )
    return found


def _number(domain: str, kinds: dict[str, int]) -> int:
    """Of the kind of drift, whatever its severity."""
    return kinds.setdefault(domain.rpartition("-")[0] or domain, len(kinds))


def rearranged(batches: Iterable[DriftedBatch]) -> Iterator[tuple[Tensor, Tensor, str, bool]]:
    """Each domain's batches; the same images by label, and again in batches so small that each
    has a few classes; and halves of them with halves of the domain before. Images, labels, domain,
    and whether they are of a few classes."""
    before: tuple[Tensor, Tensor] | None = None
    for domain, members in groupby(batches, key=lambda batch: batch[2]):
        parts = [(images, labels) for images, labels, _ in members]
        for images, labels in parts:
            yield images, labels, domain, False
        images, labels = (torch.cat(each) for each in zip(*parts, strict=True))
        order = labels.argsort(stable=True)
        if len(parts) > 1:
            for part in order.tensor_split(len(parts)):
                yield images[part], labels[part], domain, False
        for part in torch.split(order, FEW):
            yield images[part], labels[part], domain, True
        if before is not None:
            half = min(len(before[0]), len(parts[0][0])) // 2
            pairs = zip(before, parts[0], strict=True)
            mixed_images, mixed_labels = (torch.cat([a[:half], b[half:]]) for a, b in pairs)
            yield mixed_images, mixed_labels, domain, False
        before = parts[0]
