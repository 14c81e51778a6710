"""What competes: every method, set so that each round does the same full step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from race import Contestant, Ratio
from subject import Subject, bare_step

import holdfast
from holdfast.explain.card import by_kind

# A rate so small that the weights stay put, and limits so wide that what is reliable is kept.
RATE = "lr=1e-9"
# Settings under which a method is measurable: one not named here joins as it is, but for its rate.
SETTINGS = {
    "eata": "redundancy=2,fisher_samples={batch}",
    "eta": "redundancy=2",
    "rdumb": "redundancy=2",
    "sar": "reset_below=0",
    "cotta": "augment_below=1e-9",  # views have a row of their own
    "rmt": "warmup_samples=0",
    "rotta": "every={batch},capacity={batch}",
    "ttac": "threshold=0",
    "ttac-cifar": "threshold=0,variant=cifar",
}
VARIANT_OF = {"ttac-cifar": "ttac"}
# Batches that pass before all of it is at work. A class counts for TTAC's variant from 16 images
# on, and each image here is of a class of its own.
SETTLE = {"ttac-cifar": 16}
# These run in all variants, the others in the default.
CORE = ("tent", "eata", "debias", "eata+debias")
# Measured beside every method alone and every plug-in on eata.
BESIDE = (
    "ttac-cifar",
    "cotta+debias",
    "rmt+debias",
    "eata+debias+consistency",
    "bn+steady",
    "eata+debias+steady",
)


def names() -> tuple[str, ...]:
    """Every contestant: all that is registered, hosts first."""
    known = by_kind()
    alone = [name for name, method in known.items() if not method.needs_host]
    on_eata = [f"eata+{name}" for name, method in known.items() if method.plugin]
    return tuple(dict.fromkeys((*CORE, *alone, *filter(fits, on_eata), *BESIDE)))


def fits(name: str) -> bool:
    try:
        holdfast.compose(name)
    except ValueError:
        return False
    return True


def spec_of(name: str, batch: int) -> str:
    """As it is measured, with batches of so many images."""
    host, *plugins = name.split("+")
    learns = holdfast.methods()[VARIANT_OF.get(host, host)].learns
    written = [_written(host, RATE if learns else ""), *(_written(plugin) for plugin in plugins)]
    return "+".join(written).format(batch=batch)


def _written(name: str, *more: str) -> str:
    settings = ",".join(filter(None, (*more, SETTINGS.get(name, ""))))
    method = VARIANT_OF.get(name, name)
    return f"{method}({settings})" if settings else method


Variant = Literal["contiguous", "channels_last", "compiled"]
VARIANTS: dict[Variant, dict[str, Any]] = {
    "contiguous": {"memory_format": "contiguous"},
    "channels_last": {},
    "compiled": {"compile": True},
}
DEFAULT: Variant = "channels_last"

Contestants = dict[Variant, dict[str, Contestant]]  # by variant, then by name


def enter(subject: Subject, chosen: Collection[str], variants: Collection[Variant]) -> Contestants:
    contestants: Contestants = {}
    for variant in variants:
        options = VARIANTS[variant]
        contestants[variant] = {"bare": Contestant(bare_step(subject, **options))}
        for name in names():
            if name in chosen and (name in CORE or variant == DEFAULT):
                spec = spec_of(name, len(subject.images))
                adapter = holdfast.adapt(subject.net, spec, source=subject.source, **options)
                run = partial(adapter, subject.images)
                contestants[variant][name] = Contestant(run, adapter, SETTLE.get(name, 1))
    return contestants


def neighbours(contestants: Contestants) -> list[list[Contestant]]:
    """The two memory formats of a method side by side, since they are compared; all else alone."""
    pair: tuple[Variant, ...] = ("contiguous", DEFAULT)
    groups: dict[tuple[str, bool], list[Contestant]] = {}
    for variant, row in contestants.items():
        for name, contestant in row.items():
            groups.setdefault((name, variant in pair), []).append(contestant)
    return list(groups.values())


@dataclass(frozen=True)
class Measured:
    """One network: all that was measured on it. Views are 32 plain forwards, then 32 augmented."""

    contestants: Contestants
    views: tuple[Contestant, Contestant] | None
    initial_gap: float

    def gains(self) -> dict[str, tuple[Ratio, float]]:
        """By method: the default's gain in speed over contiguous, and how far logits differ."""
        plain, default = (self.contestants.get(v, {}) for v in ("contiguous", DEFAULT))
        return {
            name: (
                plain[name].over(default[name]),
                (plain[name].logits - default[name].logits).abs().max().item(),
            )
            for name in CORE
            if name in plain and name in default
        }
