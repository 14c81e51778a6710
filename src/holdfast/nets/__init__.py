"""The networks of the benchmarks, with the key names of their public checkpoints."""

from holdfast.nets.checkpoint import load_checkpoint
from holdfast.nets.resnet_cifar import ResNetCifar, resnet20, resnet56
from holdfast.nets.resnet_imagenet import ResNetImageNet, resnet50
from holdfast.nets.resnext_cifar import ResNeXtCifar, resnext29
from holdfast.nets.wide_resnet import WideResNet, wrn28_10, wrn40_2
from holdfast.nets.zoo import NETWORKS, build

__all__ = [
    "NETWORKS",
    "ResNeXtCifar",
    "ResNetCifar",
    "ResNetImageNet",
    "WideResNet",
    "build",
    "load_checkpoint",
    "resnet20",
    "resnet50",
    "resnet56",
    "resnext29",
    "wrn28_10",
    "wrn40_2",
]
