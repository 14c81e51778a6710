"""Nets and images for the doctor: nothing is trained, but running statistics are as after it."""

import functools

import torch
from torch import nn

from holdfast.models.normalization import NORMALIZATIONS

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


class Stripes(nn.Module):
    """A classifier that knows its task: it names the brightest of an image's upright stripes."""

    def __init__(self, classes):
        super().__init__()
        self.norm = nn.GroupNorm(1, 3)
        self.fc = nn.Linear(classes, classes, bias=False)
        nn.init.eye_(self.fc.weight)

    def forward(self, images):
        rows = nn.functional.adaptive_avg_pool2d(self.norm(images), (1, self.fc.in_features))
        return self.fc(40 * rows.mean((1, 2)))


def striped(labels, classes, seed=0):
    """Images for it, with so much noise that it is wrong about some."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(len(labels), 3, 4, 2 * classes, generator=generator) * 0.8
    for image, label in zip(images, labels.tolist(), strict=True):
        image[:, :, 2 * label : 2 * label + 2] += 0.15
    return images


def only_problem(diagnosis):
    assert len(diagnosis.problems) == 1, diagnosis.problems
    return diagnosis.problems[0]
