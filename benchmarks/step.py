"""What an adaptation step costs over the bare network: one forward by batch statistics, and one
backward of the summed logits to the scale and shift of the norm layers.

All contestants of a network have a turn in every round, in a new order each time, so that a machine
that slows down slows all of them. A ratio is that of the fastest rounds; behind it stand the 10th,
50th and 90th percentile of the ratios within each round.

    python benchmarks/step.py --net resnet20 --variant channels_last --rounds 20
"""

from __future__ import annotations

import copy
import json
import math
import platform
import random
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import tyro
from meter import milliseconds, peak_memory
from rich.console import Console
from step_tables import show_default, show_prototypes, show_steps, show_targets
from torch import Tensor, nn

import holdfast
from holdfast import nets
from holdfast.methods.debias import EmaPrototypes

CLASSES = 100

# A rate so small that the weights stay put, and limits so wide that EATA keeps what is reliable:
# every round does the same full step.
METHODS = {
    "tent": "tent(lr=1e-9)",
    "eata": "eata(lr=1e-9,redundancy=2,fisher_samples=64)",
    "debias": "debias(lr=1e-9)",
    "eata+debias": "eata(lr=1e-9,redundancy=2,fisher_samples=64)+debias",
}
VARIANTS: dict[str, dict[str, Any]] = {
    "contiguous": {"memory_format": "contiguous"},
    "channels_last": {},  # the default
    "compiled": {"compile": True},
}
DEFAULT = "channels_last"

# Milliseconds that a contestant has in every round: a short step is tried a few times.
TURN = 300

Net = Literal["resnet20", "resnext29"]
Variant = Literal["contiguous", "channels_last", "compiled"]


@dataclass(frozen=True)
class Settings:
    """Cost of an adaptation step over the bare network."""

    rounds: int = 20
    net: tuple[Net, ...] = ("resnet20", "resnext29")
    variant: tuple[Variant, ...] = ("contiguous", "channels_last", "compiled")
    batch: int = 64
    threads: int | None = None
    """CPU threads; torch's own choice if not given."""
    device: str = "cpu"
    json: Path | None = None
    """Write all numbers here, each round's time included."""


@dataclass
class Contestant:
    """One way to spend a step, and how it did. A bare network has no adapter."""

    run: Callable[[], Tensor]
    adapter: holdfast.Adapter | None = None
    milliseconds: list[float] = field(default_factory=list)
    stepped: list[bool] = field(default_factory=list)
    logits: Tensor | None = None
    peak_mb: float = math.nan

    def take_turn(self, device: torch.device) -> None:
        """Run for a while, one step at least; the fastest step counts for this round.

        The first step does not: it meets the memory that another contestant left, while a
        deployed adapter follows upon itself.
        """
        self.run()
        steps = []
        while sum(steps) < TURN:
            steps.append(milliseconds(self.run, device))
            if self.adapter is not None:
                self.stepped.append(self.adapter.last.stepped)
        self.milliseconds.append(min(steps))

    @property
    def fastest(self) -> float:
        return min(self.milliseconds)

    def over(self, other: Contestant) -> Ratio:
        each = [a / b for a, b in zip(self.milliseconds, other.milliseconds, strict=True)]
        low, middle, high = torch.tensor(each).quantile(torch.tensor([0.1, 0.5, 0.9])).tolist()
        return Ratio(self.fastest / other.fastest, middle, low, high)


@dataclass(frozen=True)
class Ratio:
    """A ratio of minima, with median, 10th and 90th percentile of the ratios of all rounds."""

    value: float
    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} {self.middle:.3f} {self.high:.3f})"


Contestants = dict[str, dict[str, Contestant]]  # by variant, then by method


@dataclass(frozen=True)
class Measured:
    """One network: all contestants, and the largest difference between the logits of the default
    and of the contiguous format before its head was made confident."""

    contestants: Contestants
    initial_gap: float

    def gains(self) -> dict[str, tuple[Ratio, float]]:
        """By method: the default's gain in speed over contiguous, and how far logits differ."""
        plain, default = self.contestants.get("contiguous"), self.contestants.get(DEFAULT)
        if plain is None or default is None:
            return {}
        return {
            method: (
                plain[method].over(default[method]),
                (plain[method].logits - default[method].logits).abs().max().item(),
            )
            for method in METHODS
        }


def main(settings: Settings) -> None:
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    out = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    out.print(
        f"torch {torch.__version__} on {settings.device}, {torch.get_num_threads()} threads, "
        f"{platform.machine()}; batches of {settings.batch} images 32×32, {settings.rounds} rounds"
    )
    found: dict[str, Measured] = {}
    for name in settings.net:
        found[name] = measure(name, settings)
        show_steps(out, name, found[name].contestants)
        show_default(out, name, found[name], DEFAULT)
        torch.compiler.reset()  # the next network compiles afresh
    updates = measure_prototypes(settings)
    show_prototypes(out, updates, found)
    targets = judge(found)
    show_targets(out, targets, DEFAULT)
    if settings.rounds < 20:
        out.print("Fewer than 20 rounds: a trial of the benchmark, not a measurement.")
    if settings.json is not None:
        settings.json.write_text(json.dumps(as_data(settings, found, updates, targets)))


# What is measured.


def measure(name: str, settings: Settings) -> Measured:
    torch.manual_seed(0)
    device = torch.device(settings.device)
    pictures = random_images(max(CLASSES, settings.batch), device)
    loader = [(pictures, torch.arange(len(pictures)) % CLASSES)]
    images = pictures[: settings.batch]
    raw = getattr(nets, name)(CLASSES).to(device)
    initial_gap = (predict(raw, images) - predict(raw, images, "contiguous")).abs().max().item()
    net = make_confident(raw, loader, images)
    source = holdfast.Source.from_loader(net, loader)
    contestants: Contestants = {}
    for variant in settings.variant:
        contestants[variant] = {"bare": Contestant(bare_step(net, variant, images))}
        for method, spec in METHODS.items():
            adapter = holdfast.adapt(net, spec, source=source, **VARIANTS[variant])
            contestants[variant][method] = Contestant(partial(adapter, images), adapter)
    everyone = [one for row in contestants.values() for one in row.values()]
    for index, one in enumerate(everyone):
        tell(f"{name}: warming up {index + 1} of {len(everyone)}")
        one.logits = one.run()
        one.peak_mb = peak_memory(one.run, device)
    race(name, everyone, settings.rounds, device)
    return Measured(contestants, initial_gap)


def race(name: str, everyone: list[Contestant], rounds: int, device: torch.device) -> None:
    order = random.Random(0)
    start = time.perf_counter()
    for index in range(rounds):
        order.shuffle(everyone)
        for one in everyone:
            one.take_turn(device)
        left = (time.perf_counter() - start) / (index + 1) * (rounds - index - 1)
        tell(f"{name}: round {index + 1} of {rounds}, {left:.0f} s left")
    tell("")


def random_images(count: int, device: torch.device) -> Tensor:
    """Smooth random images, which differ from each other more than pure noise would."""
    coarse = torch.rand(count, 3, 4, 4)
    return nn.functional.interpolate(coarse, size=32, mode="bilinear").to(device)


def predict(net: nn.Module, images: Tensor, memory_format: Any = "auto") -> Tensor:
    return holdfast.adapt(net, "bn", memory_format=memory_format).predict(images)


@torch.no_grad()
def make_confident(
    net: nn.Module, loader: list[tuple[Tensor, Tensor]], images: Tensor
) -> nn.Module:
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


def bare_step(net: nn.Module, variant: str, images: Tensor) -> Callable[[], Tensor]:
    plain = variant == "contiguous"
    memory_format = torch.contiguous_format if plain else torch.channels_last
    model = copy.deepcopy(net).requires_grad_(False).to(memory_format=memory_format)
    images = images.contiguous(memory_format=memory_format)
    trained = []
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.train()
            layer.track_running_stats = False
            trained += [parameter.requires_grad_(True) for parameter in layer.parameters()]
    forward = torch.compile(model) if variant == "compiled" else model

    def step() -> Tensor:
        logits = forward(images)
        torch.autograd.grad(logits.sum(), trained)
        return logits.detach()

    return step


@torch.no_grad()
def measure_prototypes(settings: Settings) -> dict[int, float]:
    """Milliseconds of one update of the EMA prototypes, by the number of classes."""
    device = torch.device(settings.device)
    found = {}
    for classes in (1_000, 21_841):
        rows = torch.randn(classes, 2048, device=device)
        term = EmaPrototypes(1.0, rows, 0.4, alpha=0.996, normalize=True, soft=False)
        features = torch.rand(settings.batch, 2048, device=device)
        labels = torch.randint(classes, (settings.batch,), device=device)
        update = partial(term.update, features, labels)
        found[classes] = min(milliseconds(update, device) for _ in range(200))
    return found


# What is concluded.


@dataclass(frozen=True)
class Target:
    text: str
    measured: float | None
    limit: float
    at_most: bool = True

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        met = self.measured <= self.limit if self.at_most else self.measured >= self.limit
        return "met" if met else "NOT MET"


def judge(found: dict[str, Measured]) -> list[Target]:
    def over(net: str, method: str, other: str) -> float | None:
        row = found[net].contestants.get(DEFAULT) if net in found else None
        return row[method].over(row[other]).value if row else None

    speed_ups = [
        ratio.value
        for name, one in found.items()
        for ratio, _ in one.gains().values()
        if name == "resnext29"
    ]
    gaps = [gap for one in found.values() for _, gap in one.gains().values()]
    return [
        Target("tent / bare, ResNeXt-29", over("resnext29", "tent", "bare"), 1.03),
        Target("debias / bare, ResNeXt-29", over("resnext29", "debias", "bare"), 1.06),
        Target("(eata+debias) / eata, ResNeXt-29", over("resnext29", "eata+debias", "eata"), 1.04),
        Target("(eata+debias) / eata, ResNet-20", over("resnet20", "eata+debias", "eata"), 1.04),
        Target(
            "contiguous / default, ResNeXt-29, the method that gains least",
            min(speed_ups, default=None),
            1.3,
            at_most=False,
        ),
        Target(
            "difference of logits, default to contiguous, head as initialised",
            max((one.initial_gap for one in found.values()), default=None),
            2e-4,
        ),
        Target(
            "difference of logits, default to contiguous, confident head",
            max(gaps, default=None),
            2e-4,
        ),
    ]


def as_data(
    settings: Settings,
    found: dict[str, Measured],
    updates: dict[int, float],
    targets: list[Target],
) -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "device": settings.device,
        "threads": torch.get_num_threads(),
        "machine": platform.platform(),
        "batch": settings.batch,
        "rounds": settings.rounds,
        "steps": [
            {
                "net": name,
                "variant": variant,
                "method": method,
                "milliseconds": one.milliseconds,
                "over_bare": vars(one.over(row["bare"])),
                "stepped": one.stepped,
                "peak_mb": one.peak_mb,
            }
            for name, measured in found.items()
            for variant, row in measured.contestants.items()
            for method, one in row.items()
        ],
        "default_over_contiguous": [
            {"net": name, "method": method, **vars(ratio), "logits_apart": gap}
            for name, measured in found.items()
            for method, (ratio, gap) in measured.gains().items()
        ],
        "initial_logits_apart": {name: measured.initial_gap for name, measured in found.items()},
        "prototype_update_ms": updates,
        "targets": [
            {"what": t.text, "limit": t.limit, "measured": t.measured, "verdict": t.verdict}
            for t in targets
        ],
    }


def tell(text: str) -> None:
    """A line of progress on stderr; no live bar, whose thread would disturb the timing."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    # The same images come back in every round: that predictions repeat is no collapse.
    warnings.filterwarnings("ignore", message=".*has collapsed")
    main(tyro.cli(Settings))
