"""Networks by name, with the normalisation that their public checkpoints were trained with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from holdfast.models.checkpoint import NORMALIZATION, load_weights, read_checkpoint
from holdfast.models.normalization import NORMALIZATIONS, Normalization, normalized, written
from holdfast.models.resnets import ResNetCifar, resnet50, resnext29, wrn28_10, wrn40_2
from holdfast.util.words import listed, nearest

# Takes images as they are, until a checkpoint says otherwise.
AS_IS: Normalization = ((0.0,) * 3, (1.0,) * 3)
HALF: Normalization = ((0.5,) * 3, (0.5,) * 3)
# By the number of classes: the public ResNets of CIFAR-10 were trained with other values.
CIFAR = {100: NORMALIZATIONS["CIFAR-100"], 10: NORMALIZATIONS["CIFAR-10 with std 0.2"]}


@dataclass(frozen=True)
class Network:
    """How to build a network, and what its public checkpoints expect.

    by_classes: their normalisation, where it differs with the number of classes.
    """

    make: Callable[[int], nn.Module]
    classes: int
    head: str
    normalization: Normalization | None
    by_classes: Mapping[int, Normalization] = field(default_factory=dict)


def _cifar_resnet(n: int) -> Network:
    return Network(lambda classes: ResNetCifar(n, classes), 100, "fc", CIFAR[100], CIFAR)


NETWORKS = {
    **{f"resnet{6 * n + 2}": _cifar_resnet(n) for n in (3, 5, 7, 9, 18)},
    "resnext29": Network(resnext29, 100, "classifier", HALF),  # AugMix's
    "wrn40-2": Network(wrn40_2, 100, "fc", HALF),  # AugMix's
    "wrn28-10": Network(wrn28_10, 10, "fc", None),  # RobustBench's
    "resnet50": Network(resnet50, 1000, "fc", NORMALIZATIONS["ImageNet"]),  # torchvision's
}


def build(
    name: str,
    weights: str | Path | None = None,
    *,
    classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """A network by name, in eval mode, for images in [0, 1]; with the weights of a checkpoint, and
    as many classes as that has.

    mean, std: of the input normalisation that the weights were trained with; by default, that of
        the public checkpoints of this network and this number of classes.
    """
    if name not in NETWORKS:
        raise ValueError(
            f"There is no network {name!r}.{nearest(name, NETWORKS)} There are {listed(NETWORKS)}."
        )
    if (mean is None) != (std is None):
        raise ValueError("mean and std come together: give both, or neither.")
    network = NETWORKS[name]
    tensors = None if weights is None else read_checkpoint(weights)
    head = None if tensors is None else tensors.get(f"{network.head}.weight")
    if classes is None:
        classes = network.classes if head is None or head.ndim != 2 else len(head)
    net = network.make(classes)
    brings = tensors is not None and not NORMALIZATION.keys().isdisjoint(tensors)
    normalization: tuple[Sequence[float], Sequence[float]] | None
    normalization = network.by_classes.get(classes, network.normalization)
    if mean is not None and std is not None:
        if brings:
            raise ValueError(f"{weights} brings its own mean and std: leave those given out.")
        normalization = mean, std
    elif brings:
        normalization = normalization or AS_IS
    elif tensors is not None and network.by_classes and classes not in network.by_classes:
        # Weights for another number of classes were trained on other images.
        said = [written(values) for values in normalization or ()]
        warnings.warn(
            f"{name} has no public weights for {classes} classes, so that their normalisation is "
            f"not known: mean {said[0]} and std {said[1]} are taken. Give those of the training: "
            "mean=…, std=… (--mean and --std on the command line).",
            stacklevel=2,
        )
    if normalization is not None:
        net = normalized(net, *normalization)
    if tensors is not None:
        load_weights(net, tensors, str(weights))
    return net.eval()
