"""Whether adapting on a device gives what it gives on the CPU: the same methods on the same images,
of the embedded benchmark, on both."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Group
from rich.text import Text
from torch import Tensor, nn

import holdfast
from holdfast.data import glyphs
from holdfast.engine.adapter import Adapter
from holdfast.recipes.compose import compose
from holdfast.source.source import Source
from holdfast.util.terminal import as_text, columns
from holdfast.util.words import first_line

# One of each way to learn and to predict, and what is recommended.
METHODS = (
    *("frozen", "bn", "tent", "sar", "rdumb", "t3a", "tsd", "lame", "santa", "ttac"),
    *("cotta", "rotta", "roid", "eata+debias", "eata+debias+steady"),
)
DOMAINS = ("fog", "original")
BATCHES, BATCH = 2, 32
SOURCE_IMAGES = 250

# Measured in float64: after these batches, other kernels (contiguous against channels_last) are
# 2e-14 apart, and a method whose steps are missing 1e-3.
TOLERANCE = 1e-6
# In float32, which is what people run, an image between two classes may fall either way.
SAME_LABELS = 0.98
# Generators of two devices draw other numbers from one seed: then accuracies are compared.
POINTS = 5.0


@dataclass(frozen=True)
class Check:
    """One method on the CPU and on the device."""

    method: str
    difference: float | None = None
    """The largest between logits in float64; None: it draws at random, or it failed."""
    moved: float | None = None
    """The same, between the device and its state file on the CPU."""
    accuracies: tuple[float, float] | None = None
    """In float64, of the CPU and of the device, in %."""
    same_labels: float | None = None
    """The share of images with the same class in float32; None where it draws at random."""
    error: str = ""

    @property
    def random(self) -> bool:
        return not self.error and self.difference is None

    @property
    def passed(self) -> bool:
        if self.error or self.moved is None or self.accuracies is None:
            return False
        if not self.moved <= TOLERANCE:  # NaN is no pass
            return False
        if self.difference is None or self.same_labels is None:
            return abs(self.accuracies[0] - self.accuracies[1]) <= POINTS
        return self.difference <= TOLERANCE and self.same_labels >= SAME_LABELS

    @property
    def row(self) -> tuple[str, ...]:
        if self.error:
            return "✗", self.method, self.error, "", "", ""
        on_cpu, on_device = self.accuracies or (0.0, 0.0)
        return (
            "✓" if self.passed else "✗",
            self.method,
            "draws at random" if self.difference is None else f"{self.difference:.1e}",
            "" if self.same_labels is None else f"{self.same_labels:.1%}",
            f"{on_cpu:.1f} | {on_device:.1f}",
            f"{self.moved:.1e}",
        )


@dataclass(frozen=True)
class Confirmation:
    """What `confirm` found: print it, or read its fields."""

    device: str
    name: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        return as_text(self)

    def __rich__(self) -> Group:
        headings = ("", "method", "logits, float64", "labels, float32", "accuracy %", "state file")
        failed = [check.method for check in self.checks if not check.passed]
        verdict = (
            f"NOT confirmed: {', '.join(failed)}."
            if failed
            else f"Confirmed: {len(self.checks)} methods adapt on {self.device} as on the CPU."
        )
        return Group(
            Text(f"{self.device} ({self.name}) against cpu, torch {torch.__version__}", "bold"),
            columns(*headings, rows=[check.row for check in self.checks]),
            Text(
                f"Passed is: logits within {TOLERANCE:g} in float64, {SAME_LABELS:.0%} of labels "
                f"the same in float32, a state file of {self.device} within {TOLERANCE:g} on the "
                f"CPU; where a method draws at random, accuracies within {POINTS:g} points."
            ),
            Text(verdict, "green" if not failed else "red"),
        )


def confirm(
    device: str, methods: Sequence[str] = METHODS, tell: Callable[[str], None] = lambda name: None
) -> Confirmation:
    """Adapt the embedded network on the CPU and on the device, and compare.

    methods: spec strings. tell: hears which of them is next.
    """
    place = _device(device)
    for method in methods:
        compose(method)  # what cannot be read is an error at once
    batches = _batches()
    checks = []
    for method in methods:
        tell(method)
        try:
            checks.append(_check(method, place, batches))
        except (RuntimeError, ValueError, TypeError) as error:
            checks.append(Check(method, error=f"{type(error).__name__}: {first_line(error)}"))
    return Confirmation(device, _name(place), tuple(checks))


def _device(device: str) -> torch.device:
    try:
        place = torch.device(device)
        torch.zeros(1, dtype=torch.float64, device=place)
    except Exception as error:  # an AssertionError, where torch was built without it
        raise ValueError(
            f"torch {torch.__version__} cannot compute in float64 on {device!r} here "
            f"({first_line(error)[:80]}): name a device that it has, as --device cpu does, or "
            "install a torch that was built for it."
        ) from None
    return place


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return device.type


def _batches() -> list[tuple[Tensor, Tensor]]:
    """Images and labels, domain after domain."""
    data = glyphs.benchmark()
    found = []
    for number, domain in enumerate(DOMAINS):
        for batch in range(BATCHES):
            start = BATCH * (number * BATCHES + batch)
            pool, some = data[domain], range(start, start + BATCH)
            found.append((pool.images(some), torch.from_numpy(pool.labels[list(some)])))
    return found


class _Shown:
    """A method after it has seen the batches on a device."""

    def __init__(
        self,
        method: str,
        device: torch.device,
        kind: torch.dtype,
        batches: Sequence[tuple[Tensor, Tensor]],
        seed: int = 0,
    ):
        self.model: nn.Module = deepcopy(glyphs.model()).to(device, kind)
        loader = [
            (images.to(device, kind), labels.to(device))
            for images, labels in glyphs.source_loader(SOURCE_IMAGES)
        ]
        source = Source.from_loader(self.model, loader)
        self.adapter: Adapter = holdfast.adapt(
            self.model, method, source=source, seed=seed, guard="none"
        )
        answers = [self.adapter(images.to(device, kind)).cpu() for images, _ in batches]
        self.logits = torch.cat(answers)
        labels = torch.cat([labels for _, labels in batches])
        self.accuracy = 100 * float((self.logits.argmax(1) == labels).double().mean())


def _check(method: str, device: torch.device, batches: list[tuple[Tensor, Tensor]]) -> Check:
    cpu = torch.device("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a stream this short leaves some unsettled
        ours, theirs = (_Shown(method, one, torch.float64, batches) for one in (cpu, device))
        last = batches[-1][0].double()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "state.safetensors")
            theirs.adapter.save(path)
            moved = holdfast.load(path, ours.model).predict(last)
        there = theirs.adapter.predict(last.to(device)).cpu()
        apart = float((moved - there).abs().max())
        accuracies = ours.accuracy, theirs.accuracy
        if not torch.equal(_Shown(method, cpu, torch.float64, batches, seed=1).logits, ours.logits):
            return Check(method, moved=apart, accuracies=accuracies)
        single = [_Shown(method, one, torch.float32, batches).logits for one in (cpu, device)]
    same = (single[0].argmax(1) == single[1].argmax(1)).double().mean()
    furthest = float((ours.logits - theirs.logits).abs().max())
    return Check(method, furthest, apart, accuracies, float(same))
