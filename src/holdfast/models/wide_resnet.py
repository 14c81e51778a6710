"""Wide ResNets for 32×32 images (Zagoruyko and Komodakis 2016; RobustBench's and AugMix's)."""

from __future__ import annotations

from torch import Tensor, nn


class WideBlock(nn.Module):
    """Norm and ReLU come first; where the shape changes, the shortcut starts behind them."""

    def __init__(self, inner: int, outer: int, stride: int):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.convShortcut: nn.Module | None = None
        if inner != outer:
            self.convShortcut = nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        active = self.bn1(x).relu()
        out: Tensor = self.conv2(self.bn2(self.conv1(active)).relu())
        return out + (x if self.convShortcut is None else self.convShortcut(active))


class WideStage(nn.Module):
    def __init__(self, blocks: int, inner: int, outer: int, stride: int):
        super().__init__()
        first = WideBlock(inner, outer, stride)
        self.layer = nn.Sequential(first, *(WideBlock(outer, outer, 1) for _ in range(blocks - 1)))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


class WideResNet(nn.Module):
    """Stages of 16, 32 and 64 times `width` channels; the feature has 64 · width dimensions."""

    def __init__(self, depth: int, width: int, classes: int = 10):
        super().__init__()
        blocks, rest = divmod(depth - 4, 6)
        if rest or blocks < 1:
            raise ValueError(f"The depth of a wide ResNet is 6n + 4, not {depth}.")
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.block1 = WideStage(blocks, 16, 16 * width, 1)
        self.block2 = WideStage(blocks, 16 * width, 32 * width, 2)
        self.block3 = WideStage(blocks, 32 * width, 64 * width, 2)
        self.bn1 = nn.BatchNorm2d(64 * width)
        self.fc = nn.Linear(64 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.block3(self.block2(self.block1(self.conv1(images))))
        logits: Tensor = self.fc(self.bn1(x).relu().mean((2, 3)))
        return logits


def wrn28_10(classes: int = 10) -> WideResNet:
    return WideResNet(28, 10, classes)


def wrn40_2(classes: int = 100) -> WideResNet:
    return WideResNet(40, 2, classes)
