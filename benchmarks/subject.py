"""What all contestants work on: a network that is sure of its images, and its bare step."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import holdfast
from holdfast import models as nets
from holdfast.engine.network import MemoryFormat

CLASSES = 100

Loader = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Subject:
    """A network, its source, and the batch that comes again and again.

    initial_gap: the largest difference between the logits of the default and of the contiguous
    format before the head was made confident.
    """

    name: str
    net: nn.Module
    source: holdfast.Source
    images: Tensor
    initial_gap: float

    @property
    def device(self) -> torch.device:
        return self.images.device


def make_subject(name: str, batch: int, device: torch.device) -> Subject:
    torch.manual_seed(0)
    count = max(CLASSES, batch)
    pictures = random_images(count, device)
    # Full batches only, so that replay costs the same every time.
    order = torch.arange(math.ceil(count / batch) * batch) % count
    loader = [(pictures[part.to(device)], part % CLASSES) for part in order.split(batch)]
    images = pictures[:batch]
    raw = getattr(nets, name)(CLASSES).to(device)
    initial_gap = (predict(raw, images) - predict(raw, images, "contiguous")).abs().max().item()
    net = make_confident(raw, loader, images)
    source = holdfast.Source.from_loader(net, loader)
    return Subject(name, net, source, images, initial_gap)


def random_images(count: int, device: torch.device) -> Tensor:
    """Smooth random images, which differ from each other more than pure noise would."""
    coarse = torch.rand(count, 3, 4, 4)
    return nn.functional.interpolate(coarse, size=32, mode="bilinear").to(device)


def predict(net: nn.Module, images: Tensor, memory_format: MemoryFormat = "auto") -> Tensor:
    return holdfast.adapt(net, "bn", memory_format=memory_format).predict(images)


@torch.no_grad()
def make_confident(net: nn.Module, loader: Loader, images: Tensor) -> nn.Module:
    """The network with running statistics, and a head that tells the loader's images apart.

    The head's rows are the directions of the class means, scaled up until nearly all images are
    reliable. With random weights none is, and EATA and debias would skip the backward and look
    cheap.
    """
    net = holdfast.adapt(net, "bn").frozen(calibrate=loader)
    means = holdfast.Source.from_loader(net, loader).prototypes
    rows = nn.functional.normalize(means - means.mean(0), dim=1)
    head = [layer for layer in net.modules() if isinstance(layer, nn.Linear)][-1]
    head.weight.copy_(rows)
    head.bias.copy_(-rows @ means.mean(0))
    logits, scale, reliable = predict(net, images), 0.1, 0.0
    while reliable < 0.98:
        scale *= 1.2
        log_p = (scale * logits).log_softmax(1)
        entropy = -(log_p.exp() * log_p).sum(1)
        reliable = (entropy < 0.4 * math.log(CLASSES)).float().mean().item()
    head.weight *= scale
    head.bias *= scale
    return net


def bare_step(
    subject: Subject, *, memory_format: MemoryFormat = "auto", compile: bool = False
) -> Callable[[], Tensor]:
    """One forward by batch statistics, and one backward of the summed logits to the scale and
    shift of the norm layers."""
    plain = memory_format == "contiguous"
    layout = torch.contiguous_format if plain else torch.channels_last
    model = copy.deepcopy(subject.net).requires_grad_(False).to(memory_format=layout)
    images = subject.images.contiguous(memory_format=layout)
    trained: list[nn.Parameter] = []
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.train()
            layer.track_running_stats = False
            trained += [parameter.requires_grad_(True) for parameter in layer.parameters()]
    forward = torch.compile(model) if compile else model

    def step() -> Tensor:
        logits = forward(images)
        torch.autograd.grad(logits.sum(), trained)
        return logits.detach()

    return step
