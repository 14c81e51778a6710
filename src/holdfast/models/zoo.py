"""Networks by name, with the normalisation that their public checkpoints were trained with."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from holdfast.models.checkpoint import brings_normalization, load_weights, read_checkpoint
from holdfast.models.normalization import NORMALIZATIONS, Normalization, normalized, written
from holdfast.models.resnet_cifar import ResNetCifar
from holdfast.models.resnet_imagenet import resnet50
from holdfast.models.resnext_cifar import resnext29
from holdfast.models.wide_resnet import wrn28_10, wrn40_2
from holdfast.util.words import listed, nearest

# Takes images as they are, until a checkpoint says otherwise.
AS_IS: Normalization = ((0.0,) * 3, (1.0,) * 3)
HALF: Normalization = ((0.5,) * 3, (0.5,) * 3)
IMAGENET = NORMALIZATIONS["ImageNet"]
# By the number of classes: the public ResNets of CIFAR-10 were trained with other values.
CIFAR = {100: NORMALIZATIONS["CIFAR-100"], 10: NORMALIZATIONS["CIFAR-10 with std 0.2"]}


@dataclass(frozen=True)
class Network:
    """How to build a network, and what its public checkpoints expect.

    by_classes: their normalisation, where it differs with the number of classes.
    """

    make: Callable[[int], nn.Module]
    what: str
    classes: int
    head: str
    normalization: Normalization | None
    by_classes: Mapping[int, Normalization] = field(default_factory=dict)


def _cifar_resnet(n: int) -> Network:
    depth = 6 * n + 2
    return Network(
        lambda c: ResNetCifar(n, c), f"ResNet-{depth}, 32×32", 100, "fc", CIFAR[100], CIFAR
    )


NETWORKS = {
    **{f"resnet{6 * n + 2}": _cifar_resnet(n) for n in (3, 5, 7, 9, 18)},
    "resnext29": Network(resnext29, "ResNeXt-29 4×32, 32×32; AugMix", 100, "classifier", HALF),
    "wrn40-2": Network(wrn40_2, "WideResNet-40-2, 32×32; AugMix", 100, "fc", HALF),
    "wrn28-10": Network(wrn28_10, "WideResNet-28-10, 32×32; RobustBench", 10, "fc", None),
    "resnet50": Network(resnet50, "ResNet-50, 224×224; torchvision", 1000, "fc", IMAGENET),
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
    brings = tensors is not None and brings_normalization(tensors)
    normalization: tuple[Sequence[float], Sequence[float]] | None
    if mean is not None and std is not None:
        if brings:
            raise ValueError(f"{weights} brings its own mean and std: leave those given out.")
        normalization = mean, std
    else:
        normalization = network.by_classes.get(classes, network.normalization)
        if normalization is None and brings:
            normalization = AS_IS
        if network.by_classes and tensors is not None and not brings:
            _check_known(name, classes)
    if normalization is not None:
        net = normalized(net, *normalization)
    if tensors is not None:
        load_weights(net, tensors, str(weights))
    return net.eval()


def _check_known(name: str, classes: int) -> None:
    """Weights for another number of classes were trained on other images."""
    network = NETWORKS[name]
    if classes in network.by_classes or network.normalization is None:
        return
    mean, std = map(written, network.normalization)
    warnings.warn(
        f"{name} has no public weights for {classes} classes, so that their normalisation is not "
        f"known: mean {mean} and std {std} are taken. Give those of the training: mean=…, std=… "
        "(--mean and --std on the command line).",
        stacklevel=3,
    )
