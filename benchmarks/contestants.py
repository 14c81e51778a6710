"""What competes: every method, set so that each round does the same full step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from race import Contestant, Ratio
from subject import Subject, bare_step

import holdfast


@dataclass(frozen=True)
class Entry:
    """A method with its settings; `settle` batches pass before all of it is at work."""

    spec: str
    settle: int = 1


# A rate so small that the weights stay put, and limits so wide that what is reliable is kept.
RATE = "lr=1e-9"
EATA = f"eata({RATE},redundancy=2,fisher_samples={{batch}})"
COTTA = f"cotta({RATE},augment_below=1e-9)"  # views have a row of their own
RMT = f"rmt({RATE},warmup_samples=0)"

ENTRIES = {
    "tent": Entry(f"tent({RATE})"),
    "eata": Entry(EATA),
    "debias": Entry(f"debias({RATE})"),
    "eata+debias": Entry(f"{EATA}+debias"),
    "frozen": Entry("frozen"),
    "bn": Entry("bn"),
    "t3a": Entry("t3a"),
    "eta": Entry(f"eta({RATE},redundancy=2)"),
    "rdumb": Entry(f"rdumb({RATE},redundancy=2)"),
    "sar": Entry(f"sar({RATE},reset_below=0)"),
    "cotta": Entry(COTTA),
    "rmt": Entry(RMT),
    "rotta": Entry(f"rotta({RATE},every={{batch}},capacity={{batch}})"),
    "tsd": Entry(f"tsd({RATE})"),
    "ttac": Entry(f"ttac({RATE},threshold=0)"),
    # A class counts from 16 images on, and each image here is of a class of its own.
    "ttac-cifar": Entry(f"ttac({RATE},threshold=0,variant=cifar)", settle=16),
    "consistency": Entry(f"consistency({RATE})"),
    "cotta+debias": Entry(f"{COTTA}+debias"),
    "rmt+debias": Entry(f"{RMT}+debias"),
    "eata+ttac": Entry(f"{EATA}+ttac(threshold=0)"),
    "eata+debias+consistency": Entry(f"{EATA}+debias+consistency"),
    "bn+steady": Entry("bn+steady"),
    "eata+debias+steady": Entry(f"{EATA}+debias+steady"),
}
# These run in all variants, the others in the default.
CORE = ("tent", "eata", "debias", "eata+debias")

Variant = Literal["contiguous", "channels_last", "compiled"]
VARIANTS: dict[Variant, dict[str, Any]] = {
    "contiguous": {"memory_format": "contiguous"},
    "channels_last": {},
    "compiled": {"compile": True},
}
DEFAULT: Variant = "channels_last"

Contestants = dict[Variant, dict[str, Contestant]]  # by variant, then by name


def enter(subject: Subject, names: Collection[str], variants: Collection[Variant]) -> Contestants:
    found: Contestants = {}
    for variant in variants:
        options = VARIANTS[variant]
        found[variant] = {"bare": Contestant(bare_step(subject, **options))}
        for name, entry in ENTRIES.items():
            if name in names and (name in CORE or variant == DEFAULT):
                spec = entry.spec.format(batch=len(subject.images))
                adapter = holdfast.adapt(subject.net, spec, source=subject.source, **options)
                run = partial(adapter, subject.images)
                found[variant][name] = Contestant(run, adapter, entry.settle)
    return found


def neighbours(contestants: Contestants) -> list[list[Contestant]]:
    """The two memory formats of a method side by side, since they are compared; all else alone."""
    pair: tuple[Variant, ...] = ("contiguous", DEFAULT)
    groups: dict[tuple[str, bool], list[Contestant]] = {}
    for variant, row in contestants.items():
        for name, one in row.items():
            groups.setdefault((name, variant in pair), []).append(one)
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
