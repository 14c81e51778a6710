"""The ResNets of the benchmarks, with the key names of their public checkpoints."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn


class BasicBlock(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int):
        super().__init__()
        self.conv1 = _conv3(inner, outer, stride)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = _conv3(outer, outer)
        self.bn2 = nn.BatchNorm2d(outer)
        self.downsample = _shortcut(inner, outer, stride)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out)) + self.downsample(x)
        return out.relu()


class Bottleneck(nn.Module):
    """The stride is on the 3×3 convolution, as in torchvision."""

    def __init__(self, inner: int, outer: int, stride: int):
        super().__init__()
        width = outer // 4
        self.conv1 = nn.Conv2d(inner, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv3(width, width, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outer, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outer)
        self.downsample = _shortcut(inner, outer, stride)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out)).relu()
        out = self.bn3(self.conv3(out)) + self.downsample(x)
        return out.relu()


class GroupedBottleneck(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int):
        super().__init__()
        width = outer // 2
        self.conv_reduce = nn.Conv2d(inner, width, 1, bias=False)
        self.bn_reduce = nn.BatchNorm2d(width)
        self.conv_conv = _conv3(width, width, stride, groups=4)
        self.bn = nn.BatchNorm2d(width)
        self.conv_expand = nn.Conv2d(width, outer, 1, bias=False)
        self.bn_expand = nn.BatchNorm2d(outer)
        self.downsample = _shortcut(inner, outer, stride)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn_reduce(self.conv_reduce(x)).relu()
        out = self.bn(self.conv_conv(out)).relu()
        out = self.bn_expand(self.conv_expand(out)) + self.downsample(x)
        return out.relu()


class WideBlock(nn.Module):
    """Norm and ReLU come first; where the shape changes, the shortcut starts behind them."""

    def __init__(self, inner: int, outer: int, stride: int):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv1 = _conv3(inner, outer, stride)
        self.bn2 = nn.BatchNorm2d(outer)
        self.conv2 = _conv3(outer, outer)
        self.convShortcut: nn.Module | None = None
        if inner != outer:
            self.convShortcut = nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = self.bn1(x).relu()
        out: Tensor = self.conv2(self.bn2(self.conv1(active)).relu())
        return out + (x if self.convShortcut is None else self.convShortcut(active))


def _conv3(inner: int, outer: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inner, outer, 3, stride, 1, groups=groups, bias=False)


def _shortcut(inner: int, outer: int, stride: int) -> nn.Module:
    """The way around a block: as it is, or brought to the block's shape."""
    if stride == 1 and inner == outer:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))


Block = Callable[[int, int, int], nn.Module]


def _stage(block: Block, count: int, inner: int, outer: int, stride: int) -> nn.Sequential:
    following = (block(outer, outer, 1) for _ in range(count - 1))
    return nn.Sequential(block(inner, outer, stride), *following)


class ResNetCifar(nn.Module):
    """Depth 6n + 2 for 32×32 images (He et al. 2016): stages of 16, 32 and 64 channels, n blocks
    each; the feature has 64 dimensions."""

    def __init__(self, n: int, classes: int = 100):
        super().__init__()
        self.conv1 = _conv3(3, 16)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(BasicBlock, n, 16, 16, 1)
        self.layer2 = _stage(BasicBlock, n, 16, 32, 2)
        self.layer3 = _stage(BasicBlock, n, 32, 64, 2)
        self.fc = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.bn1(self.conv1(images)).relu()
        x = self.layer3(self.layer2(self.layer1(x)))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class ResNetImageNet(nn.Module):
    """Four stages of bottlenecks for 224×224 images (He et al. 2016), with torchvision's key names;
    the feature has 2048 dimensions."""

    def __init__(self, blocks: tuple[int, int, int, int], classes: int = 1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = _stage(Bottleneck, blocks[0], 64, 256, 1)
        self.layer2 = _stage(Bottleneck, blocks[1], 256, 512, 2)
        self.layer3 = _stage(Bottleneck, blocks[2], 512, 1024, 2)
        self.layer4 = _stage(Bottleneck, blocks[3], 1024, 2048, 2)
        self.fc = nn.Linear(2048, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(self.bn1(self.conv1(images)).relu())
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class ResNeXtCifar(nn.Module):
    """ResNeXt-29 for 32×32 images, 4 groups of base width 32 (Xie et al. 2017; AugMix's network);
    the feature has 1024 dimensions."""

    def __init__(self, classes: int = 100):
        super().__init__()
        self.conv_1_3x3 = _conv3(3, 64)
        self.bn_1 = nn.BatchNorm2d(64)
        self.stage_1 = _stage(GroupedBottleneck, 3, 64, 256, 1)
        self.stage_2 = _stage(GroupedBottleneck, 3, 256, 512, 2)
        self.stage_3 = _stage(GroupedBottleneck, 3, 512, 1024, 2)
        self.classifier = nn.Linear(1024, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.bn_1(self.conv_1_3x3(images)).relu()
        x = self.stage_3(self.stage_2(self.stage_1(x)))
        logits: Tensor = self.classifier(x.mean((2, 3)))
        return logits


class WideStage(nn.Module):
    """Blocks under the name `layer`, as in the checkpoints."""

    def __init__(self, count: int, inner: int, outer: int, stride: int):
        super().__init__()
        self.layer = _stage(WideBlock, count, inner, outer, stride)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


class WideResNet(nn.Module):
    """Depth 6n + 4 for 32×32 images (Zagoruyko and Komodakis 2016; RobustBench's and AugMix's):
    stages of 16, 32 and 64 times `width` channels; the feature has 64 · width dimensions."""

    def __init__(self, depth: int, width: int, classes: int = 10):
        super().__init__()
        blocks, remainder = divmod(depth - 4, 6)
        if remainder or blocks < 1:
            raise ValueError(f"The depth of a wide ResNet is 6n + 4, not {depth}.")
        self.conv1 = _conv3(3, 16)
        self.block1 = WideStage(blocks, 16, 16 * width, 1)
        self.block2 = WideStage(blocks, 16 * width, 32 * width, 2)
        self.block3 = WideStage(blocks, 32 * width, 64 * width, 2)
        self.bn1 = nn.BatchNorm2d(64 * width)
        self.fc = nn.Linear(64 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.block3(self.block2(self.block1(self.conv1(images))))
        logits: Tensor = self.fc(self.bn1(x).relu().mean((2, 3)))
        return logits


def resnet20(classes: int = 100) -> ResNetCifar:
    return ResNetCifar(3, classes)


def resnet56(classes: int = 100) -> ResNetCifar:
    return ResNetCifar(9, classes)


def resnet50(classes: int = 1000) -> ResNetImageNet:
    return ResNetImageNet((3, 4, 6, 3), classes)


def resnext29(classes: int = 100) -> ResNeXtCifar:
    return ResNeXtCifar(classes)


def wrn28_10(classes: int = 10) -> WideResNet:
    return WideResNet(28, 10, classes)


def wrn40_2(classes: int = 100) -> WideResNet:
    return WideResNet(40, 2, classes)
