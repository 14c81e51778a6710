"""Nets and images for the doctor: nothing is trained, but running statistics are as after it."""

import functools

import torch
from torch import nn

from holdfast.nets.normalized import NORMALIZATIONS

CLASSES = 5


class Net(nn.Module):
    """Two convolutions with norm layers, and a head."""

    def __init__(self, norm=nn.BatchNorm2d, channels=3):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 8, 3, padding=1)
        self.norm1 = norm(8)
        self.conv2 = nn.Conv2d(8, 12, 3, stride=2, padding=1)
        self.norm2 = norm(12)
        self.fc = nn.Linear(12, CLASSES)

    def forward(self, images):
        x = self.norm1(self.conv1(images)).relu()
        return self.fc(self.norm2(self.conv2(x)).relu().mean((2, 3)))


class HeadlessNet(nn.Module):
    """Logits come out of a convolution."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.classifier = nn.Conv2d(8, CLASSES, 1)

    def forward(self, images):
        return self.classifier(self.body(images).mean((2, 3), keepdim=True)).flatten(1)


class LayerNormNet(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Flatten(), nn.Linear(3 * 16 * 16, 12), nn.LayerNorm(12), nn.Linear(12, CLASSES)
        )


def textures(count, seed=0, channels=3):
    """Smooth random images in [0, 1], each with a brightness and a contrast of its own."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.rand(*shape, generator=generator)

    coarse = nn.functional.interpolate(draw(count, channels, 4, 4) - 0.5, (16, 16), mode="bilinear")
    brightness = 0.25 + 0.5 * draw(count, 1, 1, 1)
    return (brightness + (0.5 + draw(count, 1, 1, 1)) * coarse).clamp(0, 1)


def normalize(images, mean, std):
    return (images - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]


def values_of(name, channels=3):
    mean, std = NORMALIZATIONS[name]
    return (mean, std) if len(mean) == channels else (mean * channels, std * channels)


@functools.cache
def trained_net(mean, std, seed=0, channels=3):
    """Running statistics are those of normalised images, as after training; weights are random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Net(channels=channels).train()
    with torch.no_grad():
        for batch in range(40):
            net(normalize(textures(32, 100 + batch, channels), mean, std))
    return net.eval()
