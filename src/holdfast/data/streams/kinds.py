"""The kinds of drift: in which order a stream shows which domains, and how samples are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import ClassVar, Literal

import numpy as np

from holdfast.data.pools import Indices, Pool, Uniform
from holdfast.data.readers.layouts import CLEAN
from holdfast.data.streams.flow import Lazily, Stretch, count_batches
from holdfast.data.streams.papers import ordered
from holdfast.data.streams.spec import Stream, limit_setting
from holdfast.data.streams.view import Origin, View
from holdfast.util import samplers
from holdfast.util.settings import setting


@dataclass(frozen=True)
class Continual(Stream, name="continual", after="CoTTA, debias"):
    """Each corruption once, shuffled within, and clean images last."""

    clean: bool = setting(
        True, "whether clean images come last", source="debias; other papers show none"
    )


@dataclass(frozen=True)
class Single(Continual, name="single", after="SAR"):
    """As continual, one image at a time.

    One image has no batch statistics: adapt(…, window=W) has a method see the latest W of them.
    """

    batch: int = setting(1, "images in a batch", at_least=1, at_most=1, source="SAR")


@dataclass(frozen=True)
class Paced(Continual, name="paced", after="Alfarra et al."):
    """As continual, at a speed that waits for no method.

    A method is busy from taking a batch until it asks for the next one. On CUDA the caller has to
    synchronise before it asks, else what is still to be computed counts for nothing. From the
    batch on that a resumed stream starts with, the method is not busy.
    """

    rate: float = setting(
        100, "images a second", at_least=1e-3, source="holdfast; the idea: Alfarra et al."
    )


@dataclass(frozen=True)
class Gradual(Stream, name="gradual", after="CoTTA, RMT"):
    """Each corruption at severities 1-2-3-4-5-4-3-2-1."""

    own_severities: ClassVar[bool] = True

    limit: int = limit_setting(
        "most images of each corruption at each severity, evenly picked; 0: all"
    )
    first: Literal["rising", "falling"] = setting(
        "rising",
        "the first corruption: 1 to 5 and back, or from 5 down",
        source="rising: RMT's code; falling: CoTTA",
    )

    def origins(self, view: View) -> Sequence[tuple[Origin, ...]]:
        origins = []
        for number, domain in enumerate(self.domains()):
            start = 4 if number == 0 and self.first == "falling" else 0
            severities = [0] if domain == CLEAN else [1, 2, 3, 4, 5, 4, 3, 2, 1][start:]
            origins += [(Origin.at((domain, severity)),) for severity in severities]
        return origins


@dataclass(frozen=True)
class Switching(Stream, name="switching", after="holdfast"):
    """Clean images and corruptions take turns, clean ones first.

    Clean images are one domain that comes again and again, with other images each time as far as
    limit leaves some out.
    """

    limit: int = limit_setting(
        "most images of a domain each time that it comes, evenly picked; 0: all"
    )
    clean: bool = setting(
        False, "whether clean images come once more, at the end", source="holdfast"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if set(self.domains()) <= {CLEAN}:
            raise ValueError(
                f"switching goes from clean images to a corruption and back, and needs one or "
                f"more: not order={self.order!r}."
            )

    def domains(self) -> tuple[str, ...]:
        corruptions = [name for name in ordered(self.order, self.order_seed) if name != CLEAN]
        turns = chain.from_iterable((CLEAN, name) for name in corruptions)
        return (*turns, *((CLEAN,) if self.clean else ()))

    def origins(self, view: View) -> Sequence[tuple[Origin, ...]]:
        return [(Origin(name, turn=at // 2),) for at, name in enumerate(self.domains())]

    def stretches(self, view: View, seed: int) -> Sequence[Stretch]:
        parts = super().stretches(view, seed)
        return [replace(part, visit=part.origins[0].turn) for part in parts]


@dataclass(frozen=True)
class Mixed(Stream, name="mixed", after="SAR"):
    """All corruptions at once, pooled and shuffled."""

    def origins(self, view: View) -> Sequence[tuple[Origin, ...]]:
        return [tuple(Origin(domain) for domain in self.domains())]

    def notices(self, view: View, stretches: Sequence[Stretch]) -> Iterator[str]:
        yield from super().notices(view, stretches)
        if len(self.domains()) == 1:
            yield f"{self.name}: one domain alone is not mixed with any: name more."


@dataclass(frozen=True)
class Noisy(Stream, name="noisy", after="SoTTA"):
    """As many intruders among the images, not scored."""

    limit: int = limit_setting(
        "most images of each domain, evenly picked, and as many intruders; 0: all"
    )
    kind: Literal["uniform", "other", "attack"] = setting(
        "uniform",
        "noise, or what is given as `intruders`: images of no class, adversarial images",
        source="SoTTA",
    )

    @property
    def takes_intruders(self) -> bool:
        return self.kind != "uniform"

    def origins(self, view: View) -> Sequence[tuple[Origin, ...]]:
        pairs = []
        for origin in map(Origin, self.domains()):
            pool, size = self._intruders(view, origin), view.size(origin)
            pairs.append((origin, Origin(f"{origin.domain}/{self.kind}", (), pool, size)))
        return pairs

    def _intruders(self, view: View, origin: Origin) -> Pool:
        if self.kind == "uniform":
            return Uniform(view.size(origin), view.pool(origin))
        given = view.intruders_of(origin.domain)
        if given is None and self.kind == "attack":
            raise ValueError(
                "noisy(kind=attack) mixes in images made against the model, which a stream does "
                "not know: pass them as over(data, intruders=Attacked(data, model)), from "
                "holdfast.data.attack, or take kind=uniform."
            )
        if given is None:
            raise ValueError(
                "noisy(kind=other) mixes in images of another set: pass them as "
                "over(data, intruders=pool), on the command line as --intruders SET, or take "
                "kind=uniform."
            )
        return given


@dataclass(frozen=True)
class Endless(Stream, name="endless", after="CCC"):
    """One corruption fades into the next, for ever new pairs.

    Both severities move in steps of 0.25, one down and one up, and batches run across steps: a
    short one would tell where a step ends. CCC also keeps a reference
    network's accuracy level along the way, which asks for a table of that network's.
    """

    runs_on: ClassVar[bool] = True
    redraws: ClassVar[bool] = True
    own_severities: ClassVar[bool] = True

    limit: int = limit_setting(
        "images in all are at most this times the number of corruptions; 0: samples says it"
    )
    speed: int = setting(
        1000, "images at each step", at_least=2, source="1000, 2000 or 5000 in CCC"
    )
    samples: int = setting(7_500_000, "images in all", at_least=1, source="7.5 million in CCC")
    severity: float = setting(
        5,
        "severity of a corruption by itself",
        at_least=0.25,
        at_most=5,
        source="holdfast; CCC goes by a network's accuracy",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(set(self.domains())) < 2 or CLEAN in self.domains():
            raise ValueError(
                f"endless goes from corruption to corruption and needs two or more, without "
                f"{CLEAN}: not order={self.order!r}, clean={self.clean}."
            )
        if self.severity % 0.25:
            raise ValueError(f"endless: severity is a multiple of 0.25, not {self.severity:g}.")

    def stretches(self, view: View, seed: int) -> Sequence[Stretch]:
        names = self.domains()
        view.size(Origin.at(*((name, 0.25) for name in names)))  # what is missing shows at once
        count = count_batches(self.total, self.speed)  # a last step of one image is none
        # Each corruption is another one than that before it.
        rng = np.random.default_rng([seed, 0, 1])
        moves = rng.integers(1, len(names), count // self._steps + 2)
        return Lazily(count, partial(self._step, count, np.cumsum(moves) % len(names)))

    def notices(self, view: View, stretches: Sequence[Stretch]) -> Iterator[str]:
        yield from super().notices(view, stretches)
        if len(stretches) <= self._steps:
            yield (
                f"{self.name}: its {self.total:,} images end before the second corruption is there "
                f"by itself, which takes {self.speed * self._steps:,} images: lower speed, or "
                f"raise {'limit' if self.total < self.samples else 'samples'}."
            )

    @property
    def total(self) -> int:
        """Images in all."""
        return min(self.samples, self.limit * len(self.domains()) or self.samples)

    @property
    def _steps(self) -> int:
        return round(self.severity / 0.25)

    def _step(self, count: int, chain: Indices, number: int) -> Stretch:
        pair, step = divmod(number, self._steps)
        fading, rising = (self.domains()[index] for index in chain[pair : pair + 2])
        origin = Origin.at((fading, self.severity - 0.25 * step), (rising, 0.25 * step))
        size = self.speed if number + 1 < count else self.total - number * self.speed
        return Stretch((origin,), size, partial(samplers.cycle, count=size))
