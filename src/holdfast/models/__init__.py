"""The networks of the benchmarks, with the key names of their public checkpoints."""

from holdfast.models.checkpoint import load_checkpoint
from holdfast.models.resnets import (
    ResNetCifar,
    ResNetImageNet,
    ResNeXtCifar,
    WideResNet,
    resnet20,
    resnet50,
    resnet56,
    resnext29,
    wrn28_10,
    wrn40_2,
)
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
