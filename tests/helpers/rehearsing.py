"""Small rehearsals of the toy net: labelled toy images that are large enough to be corrupted, and a
clock that gives every method its time."""

import json

import torch
from drifting import home_net, labelled
from toys import CLASSES

import holdfast
from holdfast.rehearsal import rehearsal, session

BATCH = 16


def large(images):
    return torch.nn.functional.interpolate(images, scale_factor=2)


def loader(batches=12, count=28, seed=0):
    """Batches with as many images of each class."""
    made = []
    for number in range(batches):
        some = [
            labelled(count=count // CLASSES, seed=seed + 100 * number + c, label=c)
            for c in range(CLASSES)
        ]
        images, labels = (torch.cat(parts) for parts in zip(*some, strict=True))
        mixed = torch.randperm(count, generator=torch.Generator().manual_seed(number))
        made.append((large(images)[mixed], labels[mixed]))
    return made


def net(inner=None):
    """The toy net, for images twice as large."""
    return torch.nn.Sequential(torch.nn.AvgPool2d(2), inner or home_net()).eval()


def time_alike(monkeypatch, seconds=1e-3):
    """Every method takes so long for an image, and all else no time, whatever the machine does."""

    def timed(adapter, images, sizes):
        adapter(images[: max(sizes)])
        return dict.fromkeys(sizes, seconds)

    monkeypatch.setattr(session, "time_batches", timed)
    for module in (session, rehearsal):
        monkeypatch.setattr(module, "monotonic", lambda: 0.0)


def rehearse(folder=None, *, batches=12, **options):
    """The shortest there is, unless more minutes are given."""
    given = {"minutes": 0.03, "methods": ["tent"], "batch": BATCH, "folder": folder, **options}
    return holdfast.rehearse(net(), loader(batches), **given)


def ending(folder):
    """What a rehearsal wrote at its end, but for times."""
    rehearsed = json.loads((folder / "rehearsal.json").read_text())
    for standing in rehearsed["standings"]:
        standing.pop("cost")
    return rehearsed
