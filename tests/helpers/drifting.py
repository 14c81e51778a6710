"""Labelled toy images under drift, a net that is at home on the clean ones, and a source that is
calibrated for health."""

import torch
from toys import CLASSES, staged_net, textures, toy_net, typical_images

import holdfast
from holdfast import HealthOptions

DRIFT = {
    "clean": lambda images, noise: images,
    "noise": lambda images, noise: images + 0.25 * noise,
    "bright": lambda images, noise: 0.4 * images + 0.6,
    "tint": lambda images, noise: images * torch.tensor([1, 0.3, 0.5])[:, None, None],
    "dark": lambda images, noise: 0.3 * images,  # never calibrated on
}
CALIBRATED_ON = ("clean", "noise-1", "bright-1", "tint-1")


def labelled(kind="clean", count=32, seed=0, label=None):
    """Images of a kind of drift, and their labels: all classes alike, or one of them."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    if label is not None:
        labels = torch.full_like(labels, label)
    images = 0.85 * typical_images()[labels] + 0.15 * textures(count, generator)
    noise = torch.randn(images.shape, generator=generator)
    return DRIFT[kind](images.float(), noise).clamp(0, 1), labels


def images_of(kind="clean", batches=1, count=32, seed=1000, label=None):
    """A stream of them, without labels."""
    return [labelled(kind, count, seed + number, label)[0] for number in range(batches)]


def at_home(net):
    """The net with statistics of clean images, as if it had been trained on them."""
    for layer in net.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.reset_running_stats()
            layer.momentum = None  # torch's word for a plain average
            layer.train()
    with torch.no_grad():
        for images in images_of(batches=8, count=64, seed=500):
            net(images)
    for layer in net.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.momentum = 0.1
    return net.eval()


def home_net():
    return at_home(toy_net())


def staged_home_net():
    return at_home(staged_net())


def drifted(batches=7):
    """Labelled batches to calibrate on."""
    return [
        (*labelled(kind.removesuffix("-1"), 32, 100 * place + number), kind)
        for place, kind in enumerate(CALIBRATED_ON)
        for number in range(batches)
    ]


def calibrated(net, **options):
    """A source that health can be estimated with."""
    loader = [labelled(count=56, seed=200 + number) for number in range(8)]
    return holdfast.Source.from_loader(net, loader, drifted=drifted(), **options)


def adapt_watched(home, spec="bn", **options):
    """An adapter of a net with its calibrated source, whose health is measured on every batch."""
    net, source = home
    return holdfast.adapt(net, spec, source=source, **{"health": HealthOptions(every=1)} | options)
