"""Labelled images are read, checked and parted."""

import numpy as np
import pytest
import torch
from rehearsing import BATCH, loader
from toys import CLASSES

from holdfast.data.images import as_bytes
from holdfast.rehearsal.images import part, read


def pixels(held):
    return held.raw(range(len(held)))


def test_every_image_goes_to_one_part_and_every_class_to_both():
    held = read(loader(), CLASSES, None, BATCH)
    parts = part(held, seed=0)
    rows = [{bytes(one.numpy()) for one in pixels(side)} for side in (parts.source, parts.shown)]
    everything = {bytes(one.numpy()) for one in pixels(held)}
    assert not rows[0] & rows[1] and rows[0] | rows[1] == everything
    assert len(parts.source) == len(parts.shown) == len(held) / 2
    counts = [np.bincount(side.labels, minlength=CLASSES) for side in (parts.source, parts.shown)]
    assert counts[0].min() > 0 and abs(counts[0] - counts[1]).max() <= 1


def test_images_keep_their_labels():
    batches = loader()
    held = read(batches, CLASSES, None, BATCH)
    known = {
        bytes(one.numpy()): int(label)
        for images, labels in batches
        for one, label in zip(as_bytes(images), labels, strict=True)
    }
    for side in vars(part(held, seed=3)).values():
        assert [known[bytes(one.numpy())] for one in pixels(side)] == side.labels.tolist()


def test_the_first_so_many_are_read():
    batches = loader()
    held = read(batches, CLASSES, 100, BATCH)
    images = torch.cat([images for images, _ in batches])[:100]
    assert torch.equal(held.pixels, as_bytes(images))


def one_class(batches):
    return [(images, torch.zeros_like(labels)) for images, labels in batches]


def few_classes(batches):
    return [(images, labels % 3) for images, labels in batches]


def normalised(batches):
    return [(images * 4 - 2, labels) for images, labels in batches]


def other_size(batches):
    return [*batches[:1], (batches[1][0][:, :, :16, :15], batches[1][1])]


WRONG = [
    (lambda batches: [images for images, _ in batches], "there are no labels"),
    (lambda batches: [(images, labels.float()) for images, labels in batches], "whole numbers"),
    (lambda batches: [(images, labels + 1) for images, labels in batches], "0 to 6"),
    (one_class, "are of class 0"),
    (few_classes, "show 3 of the model's 7 classes; expected most of them. Shuffle"),
    (lambda batches: batches[:1], "found 28 images; expected 64 or more"),
    (lambda batches: [], "the loader is empty"),
    (normalised, "normalisation inside"),
    (other_size, r"\(3, 16, 15\), others of \(3, 16, 16\)"),
    (lambda batches: 5, "cannot be gone through"),
]


@pytest.mark.parametrize(("change", "expected"), WRONG)
def test_what_cannot_be_rehearsed_is_told(change, expected):
    with pytest.raises(ValueError, match=expected):
        read(change(loader(4)), CLASSES, None, BATCH)


def test_of_many_classes_three_images_each_are_enough():
    """Every class is on both sides then, and none is asked for more."""
    classes, labels = 40, torch.arange(40).repeat(3)
    given = [(torch.rand(120, 3, 4, 4), labels)]
    parts = part(read(given, classes, None, batch=16), seed=0)
    for side in (parts.source, parts.shown):
        assert set(side.labels.tolist()) == set(range(classes))
    with pytest.raises(ValueError, match="found 78 images; expected 80 or more: 2 for each of 40"):
        read([(given[0][0][:78], torch.arange(78) % 40)], classes, None, batch=16)
