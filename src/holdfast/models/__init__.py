"""The networks of the benchmarks, with the key names of their public checkpoints."""

from holdfast.models.checkpoint import load_checkpoint
from holdfast.models.resnet_cifar import ResNetCifar, resnet20, resnet56
from holdfast.models.resnet_imagenet import ResNetImageNet, resnet50
from holdfast.models.resnext_cifar import ResNeXtCifar, resnext29
from holdfast.models.wide_resnet import WideResNet, wrn28_10, wrn40_2
from holdfast.models.zoo import NETWORKS, build

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
