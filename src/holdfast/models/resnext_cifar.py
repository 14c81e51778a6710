"""ResNeXt-29 for 32×32 images, 4 groups of base width 32 (Xie et al. 2017; AugMix's network)."""

from __future__ import annotations

from torch import Tensor, nn

from holdfast.models.resnet_cifar import shortcut

GROUPS = 4


class Bottleneck(nn.Module):
    def __init__(self, inner: int, width: int, outer: int, stride: int):
        super().__init__()
        self.conv_reduce = nn.Conv2d(inner, width, 1, bias=False)
        self.bn_reduce = nn.BatchNorm2d(width)
        self.conv_conv = nn.Conv2d(width, width, 3, stride, 1, groups=GROUPS, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.conv_expand = nn.Conv2d(width, outer, 1, bias=False)
        self.bn_expand = nn.BatchNorm2d(outer)
        self.downsample = shortcut(inner, outer, stride)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn_reduce(self.conv_reduce(x)).relu()
        out = self.bn(self.conv_conv(out)).relu()
        out = self.bn_expand(self.conv_expand(out))
        out = (out + self.downsample(x)).relu()
        return out


class ResNeXtCifar(nn.Module):
    """Three stages of three blocks; the feature has 1024 dimensions."""

    def __init__(self, classes: int = 100):
        super().__init__()
        self.conv_1_3x3 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn_1 = nn.BatchNorm2d(64)
        self.stage_1 = _stage(64, 128, 256, 1)
        self.stage_2 = _stage(256, 256, 512, 2)
        self.stage_3 = _stage(512, 512, 1024, 2)
        self.classifier = nn.Linear(1024, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.bn_1(self.conv_1_3x3(images)).relu()
        x = self.stage_3(self.stage_2(self.stage_1(x)))
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits


def _stage(inner: int, width: int, outer: int, stride: int) -> nn.Sequential:
    first = Bottleneck(inner, width, outer, stride)
    return nn.Sequential(first, *(Bottleneck(outer, width, outer, 1) for _ in range(2)))


def resnext29(classes: int = 100) -> ResNeXtCifar:
    return ResNeXtCifar(classes)
