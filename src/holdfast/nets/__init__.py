"""The networks of the benchmarks, with the key names of their public checkpoints."""

from holdfast.nets.resnet_cifar import ResNetCifar, resnet20, resnet56
from holdfast.nets.resnext_cifar import ResNeXtCifar, resnext29

__all__ = ["ResNeXtCifar", "ResNetCifar", "resnet20", "resnet56", "resnext29"]
