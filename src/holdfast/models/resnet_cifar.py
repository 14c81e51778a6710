"""ResNets of depth 6n + 2 for 32×32 images (He et al. 2016)."""

from __future__ import annotations

from torch import Tensor, nn


def shortcut(inner: int, outer: int, stride: int) -> nn.Module:
    """The way around a block: as it is, or brought to the block's shape."""
    if stride == 1 and inner == outer:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))


class BasicBlock(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.downsample = shortcut(inner, outer, stride)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out))
        out = (out + self.downsample(x)).relu()
        return out


class ResNetCifar(nn.Module):
    """Stages of 16, 32 and 64 channels, n blocks each; the feature has 64 dimensions."""

    def __init__(self, n: int, classes: int = 100):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(n, 16, 16, 1)
        self.layer2 = _stage(n, 16, 32, 2)
        self.layer3 = _stage(n, 32, 64, 2)
        self.fc = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.bn1(self.conv1(images)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def _stage(blocks: int, inner: int, outer: int, stride: int) -> nn.Sequential:
    first = BasicBlock(inner, outer, stride)
    return nn.Sequential(first, *(BasicBlock(outer, outer, 1) for _ in range(blocks - 1)))


def resnet20(classes: int = 100) -> ResNetCifar:
    return ResNetCifar(3, classes)


def resnet56(classes: int = 100) -> ResNetCifar:
    return ResNetCifar(9, classes)
