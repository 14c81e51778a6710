"""A small network and its source, for which a batch takes a millisecond."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import holdfast

CLASSES = 5
SIDE = 8


class SmallNet(nn.Module):
    """Two convolutions with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.conv2, self.norm2 = nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.norm1(self.conv1(images)).relu()
        x = self.norm2(self.conv2(x)).relu()
        return self.fc(x.mean((2, 3)))


def small_net() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SmallNet().eval()


def small_images(count: int = 8, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, SIDE, SIDE, generator=generator)


def small_loader() -> list[tuple[Tensor, Tensor]]:
    return [(small_images(10, seed), torch.arange(10) % CLASSES) for seed in (1, 2)]


def small_source(model: nn.Module) -> holdfast.Source:
    return holdfast.Source.from_loader(model, small_loader())
