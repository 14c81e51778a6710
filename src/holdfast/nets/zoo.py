"""Networks by name, with the normalisation that their public checkpoints were trained with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from holdfast.nets.checkpoint import brings_normalization, load_weights, read_checkpoint
from holdfast.nets.normalized import NORMALIZATIONS, Values, normalized
from holdfast.nets.resnet_cifar import ResNetCifar
from holdfast.nets.resnet_imagenet import resnet50
from holdfast.nets.resnext_cifar import resnext29
from holdfast.nets.wide_resnet import wrn28_10, wrn40_2
from holdfast.words import listed, nearest

# Takes images as they are, until a checkpoint says otherwise.
AS_IS: tuple[Values, Values] = ((0.0,) * 3, (1.0,) * 3)
HALF: tuple[Values, Values] = ((0.5,) * 3, (0.5,) * 3)
CIFAR = NORMALIZATIONS["CIFAR"]
IMAGENET = NORMALIZATIONS["ImageNet"]


@dataclass(frozen=True)
class Network:
    """How to build a network, and what its public checkpoints expect."""

    make: Callable[[int], nn.Module]
    what: str
    classes: int
    head: str
    normalization: tuple[Values, Values] | None


def _cifar_resnet(n: int) -> Network:
    depth = 6 * n + 2
    return Network(lambda c: ResNetCifar(n, c), f"ResNet-{depth}, 32×32", 100, "fc", CIFAR)


NETWORKS = {
    **{f"resnet{6 * n + 2}": _cifar_resnet(n) for n in (3, 5, 7, 9, 18)},
    "resnext29": Network(resnext29, "ResNeXt-29 4×32, 32×32; AugMix", 100, "classifier", HALF),
    "wrn40-2": Network(wrn40_2, "WideResNet-40-2, 32×32; AugMix", 100, "fc", HALF),
    "wrn28-10": Network(wrn28_10, "WideResNet-28-10, 32×32; RobustBench", 10, "fc", None),
    "resnet50": Network(resnet50, "ResNet-50, 224×224; torchvision", 1000, "fc", IMAGENET),
}


def build(name: str, weights: str | Path | None = None, *, classes: int | None = None) -> nn.Module:
    """A network by name, in eval mode, for images in [0, 1]; with the weights of a checkpoint, and
    as many classes as that has."""
    if name not in NETWORKS:
        raise ValueError(
            f"There is no network {name!r}.{nearest(name, NETWORKS)} There are {listed(NETWORKS)}."
        )
    network = NETWORKS[name]
    tensors = None if weights is None else read_checkpoint(weights)
    head = None if tensors is None else tensors.get(f"{network.head}.weight")
    if classes is None:
        classes = network.classes if head is None or head.ndim != 2 else len(head)
    net = network.make(classes)
    normalization = network.normalization
    if normalization is None and tensors is not None and brings_normalization(tensors):
        normalization = AS_IS
    if normalization is not None:
        net = normalized(net, *normalization)
    if tensors is not None:
        load_weights(net, tensors, str(weights))
    return net.eval()
