"""The networks of the benchmarks, with the key names of their public checkpoints."""

from holdfast.models.checkpoint import load_checkpoint as load_checkpoint
from holdfast.models.find import NETWORKS as NETWORKS
from holdfast.models.find import build as build
from holdfast.models.resnets import ResNetCifar as ResNetCifar
from holdfast.models.resnets import ResNetImageNet as ResNetImageNet
from holdfast.models.resnets import ResNeXtCifar as ResNeXtCifar
from holdfast.models.resnets import WideResNet as WideResNet
from holdfast.models.resnets import resnet20 as resnet20
from holdfast.models.resnets import resnet50 as resnet50
from holdfast.models.resnets import resnet56 as resnet56
from holdfast.models.resnets import resnext29 as resnext29
from holdfast.models.resnets import wrn28_10 as wrn28_10
from holdfast.models.resnets import wrn40_2 as wrn40_2
