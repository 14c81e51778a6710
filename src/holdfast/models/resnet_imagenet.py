"""ResNet-50 for 224×224 images (He et al. 2016), with torchvision's key names."""

from __future__ import annotations

from torch import Tensor, nn

from holdfast.models.resnet_cifar import shortcut

EXPANSION = 4


class Bottleneck(nn.Module):
    """The stride is on the 3×3 convolution, as in torchvision."""

    def __init__(self, inner: int, width: int, stride: int):
        super().__init__()
        outer = EXPANSION * width
        self.conv1 = nn.Conv2d(inner, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outer, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outer)
        self.downsample = shortcut(inner, outer, stride)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out)).relu()
        out = self.bn3(self.conv3(out))
        out = (out + self.downsample(x)).relu()
        return out


class ResNetImageNet(nn.Module):
    """Four stages of bottlenecks; the feature has 2048 dimensions."""

    def __init__(self, blocks: tuple[int, int, int, int], classes: int = 1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = _stage(blocks[0], 64, 64, 1)
        self.layer2 = _stage(blocks[1], 256, 128, 2)
        self.layer3 = _stage(blocks[2], 512, 256, 2)
        self.layer4 = _stage(blocks[3], 1024, 512, 2)
        self.fc = nn.Linear(2048, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(self.bn1(self.conv1(images)).relu())
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def _stage(blocks: int, inner: int, width: int, stride: int) -> nn.Sequential:
    first = Bottleneck(inner, width, stride)
    rest = (Bottleneck(EXPANSION * width, width, 1) for _ in range(blocks - 1))
    return nn.Sequential(first, *rest)


def resnet50(classes: int = 1000) -> ResNetImageNet:
    return ResNetImageNet((3, 4, 6, 3), classes)
