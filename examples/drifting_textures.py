"""A texture classifier meets a drifting world: noise, blur, haze … and clear weather again.

Everything is made up on the spot: textures, a small network trained on them, and a stream of
domains. Each method sees the same stream once, in order, with no labels and no reset, and is
scored on the predictions it gave on the way. It takes two minutes, and shows how holdfast is
used; so small a world ranks no methods.
"""

import torch
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

import holdfast
from holdfast.nets import ResNetCifar

SEED = 0
CLASSES = 24
BATCH = 64
TRAINING_STEPS = 400
BATCHES_A_DOMAIN = 20

# One rate for all, larger than the defaults: these suit streams of 12,000 batches, not of 180.
# EATA's default redundancy, 0.05, suits a thousand classes. With 24, the cosine of a sure
# prediction to an even mean is 1/√24 = 0.2, so that it would leave all images out.
METHODS = [
    "frozen",
    "bn",
    "tent(lr=0.01)",
    "eata(lr=0.01,redundancy=0.4)",
    "debias(lr=0.01)",
    "tent(lr=0.01)+debias",
    "eata(lr=0.01,redundancy=0.4)+debias",
]

# What the world does to images in [0, 1], in the order in which it happens.
DRIFT = {
    "noise": lambda x: x + 0.2 * torch.randn_like(x),
    "blur": lambda x: F.avg_pool2d(F.pad(x, (2, 2, 2, 2), "reflect"), 5, stride=1),
    "contrast": lambda x: 0.35 + 0.3 * x,
    "glare": lambda x: 0.4 + x,
    "pixelate": lambda x: F.interpolate(F.avg_pool2d(x, 4), scale_factor=4),
    "haze": lambda x: 0.5 * x + 0.2 + 0.3 * F.interpolate(torch.rand(len(x), 1, 4, 4), size=32),
    "dusk": lambda x: x * torch.tensor([0.5, 0.3, 0.6]).reshape(3, 1, 1),
    "dead pixels": lambda x: x * (torch.rand(len(x), 1, 32, 32) > 0.3),
    "clear": lambda x: x,
}

Batches = list[tuple[Tensor, Tensor]]
screen = Console(stderr=True)


def main() -> None:
    torch.manual_seed(SEED)
    textures = make_textures()
    model = train(textures)
    source = holdfast.Source.from_loader(model, take_photographs(textures, 40))
    stream = {}
    for domain, drift in DRIFT.items():
        clean = take_photographs(textures, BATCHES_A_DOMAIN)
        stream[domain] = [(drift(images).clamp(0, 1), labels) for images, labels in clean]
    results = {}
    for method in METHODS:
        adapter = holdfast.adapt(model, method, source=source, seed=SEED)
        results[adapter.method.names] = follow(stream, adapter)
    show(results)


def follow(stream: dict[str, Batches], adapter: holdfast.Adapter) -> dict[str, str]:
    """Predict and adapt along the stream; the score of each domain, and of all."""
    scores, confidence, correct, seconds, steps = {}, [], [], [], 0
    for domain, batches in track(stream.items(), adapter.method.names, console=screen):
        for images, labels in batches:
            logits = adapter(images)
            highest, predicted = logits.softmax(1).max(1)
            confidence.append(highest)
            correct.append((predicted == labels).float())
            seconds.append(adapter.last.seconds)
            steps += adapter.last.stepped
        scores[domain] = f"{100 * torch.cat(correct[-len(batches) :]).mean():.1f}"
    every = torch.cat(correct)
    return scores | {
        "mean": f"{100 * every.mean():.1f}",
        "ECE": f"{100 * calibration_error(torch.cat(confidence), every):.1f}",
        "steps taken": str(steps),
        "ms a batch": f"{1e3 * torch.tensor(seconds).median():.0f}",
    }


def calibration_error(confidence: Tensor, correct: Tensor, bins: int = 15) -> float:
    """How far accuracy is from confidence, over bins of like confidence."""
    place = (confidence * bins).long().clamp(max=bins - 1)
    gaps = torch.zeros(bins).index_add(0, place, correct - confidence)
    return gaps.abs().sum().item() / len(confidence)


def make_textures() -> Tensor:
    """A smooth colour pattern for each class, which repeats at its edges."""
    coarse = F.pad(torch.rand(CLASSES, 3, 12, 12), (2, 2, 2, 2), "circular")
    return F.interpolate(coarse, scale_factor=4, mode="bicubic")[..., 8:-8, 8:-8].clamp(0, 1)


def take_photographs(textures: Tensor, count: int) -> Batches:
    """Batches of 32×32 images: a window on a texture, with clutter, under changing light."""

    def window(labels: Tensor) -> Tensor:
        side = textures.shape[-1]
        rows, columns = (torch.randint(side, (2, BATCH, 1)) + torch.arange(32)) % side
        pixels = textures[labels[:, None, None], :, rows[:, :, None], columns[:, None, :]]
        return pixels.permute(0, 3, 1, 2)

    def uniform(low: float, high: float, channels: int = 1) -> Tensor:
        return low + (high - low) * torch.rand(BATCH, channels, 1, 1)

    def photograph(labels: Tensor) -> Tensor:
        clutter = window(torch.randint(CLASSES, (BATCH,)))
        images = torch.lerp(window(labels), clutter, uniform(0.15, 0.5))
        images = 0.5 + uniform(0.6, 1.4) * (images - 0.5) + uniform(-0.15, 0.15, channels=3)
        return (images + 0.05 * torch.randn_like(images)).clamp(0, 1)

    return [(photograph(labels), labels) for labels in torch.randint(CLASSES, (count, BATCH))]


def train(textures: Tensor) -> nn.Module:
    """A small residual network that takes images in [0, 1] and normalises them itself."""
    model = holdfast.normalized(ResNetCifar(1, CLASSES), mean=(0.5,) * 3, std=(0.25,) * 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=TRAINING_STEPS)
    for _ in track(range(TRAINING_STEPS), "training", console=screen):
        [(images, labels)] = take_photographs(textures, 1)
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def show(results: dict[str, dict[str, str]]) -> None:
    table = Table(title="Accuracy in %, down the stream", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("domain")
    for name in results:
        table.add_column(name, justify="right")
    for row in results["frozen"]:
        table.add_row(row, *(scores[row] for scores in results.values()))
        if row == "clear":
            table.add_section()
    Console().print(table)


if __name__ == "__main__":
    main()
