"""Estimates of accuracy on a net and images as people have them, under drift that nothing was
calibrated on."""

import torch

import holdfast
from holdfast import HealthOptions
from holdfast.data import glyphs
from holdfast.data.corrupt.corruptions import corrupt
from holdfast.data.holdout import drifted

KINDS = (None, ("brightness", 3), ("fog", 2), ("jpeg_compression", 3), ("gaussian_noise", 5))


def test_the_less_accurate_it_is_the_lower_the_estimate():
    model, loader = glyphs.model(), glyphs.source_loader(1000)
    source = holdfast.Source.from_loader(model, loader, drifted=drifted(loader, images=64))
    watched = HealthOptions(every=1)
    adapter = holdfast.adapt(model, "bn+steady", source=source, health=watched)
    rows = []
    for number, kind in enumerate(KINDS):
        indices = torch.arange(300 * number, 300 * number + 256)
        images, labels = glyphs.images("test", indices), glyphs.labels("test", indices)
        if kind is not None:
            images = corrupt(images, *kind, table="cifar", indices=indices)
        right = (adapter(images).argmax(1) == labels).double().mean().item()
        rows.append((right, adapter.health.accuracy))
    errors = [abs(estimate - right) for right, estimate in rows]
    assert sum(errors) / len(errors) < 0.1
    by_truth, by_estimate = (sorted(range(len(rows)), key=lambda n: rows[n][i]) for i in (0, 1))
    assert by_truth[:2] == by_estimate[:2] and by_truth[-1] == by_estimate[-1] == 0, rows
