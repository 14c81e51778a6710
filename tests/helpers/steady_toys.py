"""Nets and batches on which steady does all that it can do."""

import torch
from torch import nn
from toys import CLASSES, stream, textures

import holdfast


class Varied(nn.Module):
    """BatchNorm2d that runs twice, one without scales, and BatchNorm1d."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(6)
        self.mid = nn.Conv2d(6, 6, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(6, affine=False)
        self.norm3 = nn.BatchNorm1d(6)
        self.fc = nn.Linear(6, CLASSES)

    def forward(self, images):
        x = self.norm1(self.conv(images)).relu()
        x = self.norm1(self.mid(x)).relu()
        x = self.norm2(self.mid(x)).relu()
        return self.fc(self.norm3(x.mean((2, 3))))


def varied_net(dtype=torch.float64):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        net = Varied().double()
        with torch.no_grad():
            for norm in (net.norm1, net.norm3):
                norm.weight.uniform_(0.5, 1.5)
                norm.bias.uniform_(-0.3, 0.3)
        net.train()
        for images in stream(("all", "some", "some"), torch.float64, seed=100):
            net(images)
    return net.eval().to(dtype)


def source_of(net):
    """Images of one kind, which the toys' own source does not have."""
    dtype, generator = next(net.parameters()).dtype, torch.Generator().manual_seed(2)
    labels = torch.arange(14) % CLASSES
    loader = [(textures(14, generator).to(dtype), labels) for _ in range(30)]
    return holdfast.Source.from_loader(net, loader)


def batches(dtype):
    """Like the source, drifted, of two kinds, and single images."""
    generator = torch.Generator().manual_seed(9)
    calm = [textures(16, generator) for _ in range(3)]
    drifted = [0.3 * images + 0.5 for images in calm]
    dark = 0.2 * textures(7, generator)
    mixed = torch.cat([calm[0][3:], dark])[torch.randperm(20, generator=generator)]
    odd = [textures(5, generator) ** 2, drifted[0][:1], calm[1][:1]]
    return [images.to(dtype) for images in [*calm, *drifted, mixed, *odd, drifted[1], mixed]]
