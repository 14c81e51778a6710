"""The kinds of drift: in which order a stream shows which domains, and how samples are drawn.

Those whose labels come in runs are in `label_kinds`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from holdfast.data.pools import Indices, Pool, Uniform
from holdfast.data.readers.layouts import CLEAN
from holdfast.data.streams import samplers
from holdfast.data.streams.flow import Lazily, Stretch, count_batches
from holdfast.data.streams.orders import ordered
from holdfast.data.streams.samplers import Sampler
from holdfast.data.streams.spec import Stream, limit_setting, register
from holdfast.data.streams.view import Origin, View
from holdfast.util.settings import setting

ORDER_MEANING = "paper, rotta, cotta0 to cotta9, random, or domains with commas between them"


@dataclass(frozen=True)
class Ordered(Stream):
    """Domain after domain."""

    order: str = setting(
        "paper",
        ORDER_MEANING,
        source="paper: debias; rotta: RoTTA; cotta0 to cotta9: CoTTA",
    )
    order_seed: int = setting(
        0, "which random order", at_least=0, source="debias, which has three random orders"
    )
    clean: bool = setting(
        False, "whether clean images come last", source="debias; other papers show none"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.domains()  # an order that is not there is an error at once

    def domains(self) -> tuple[str, ...]:
        return ordered(self.order, self.order_seed) + ((CLEAN,) if self.clean else ())

    def draws(self) -> Sampler:
        return samplers.shuffle

    def stretches(self, view: View, seed: int) -> Sequence[Stretch]:
        origins = [Origin(domain) for domain in self.domains()]
        return [Stretch((origin,), view.size(origin), self.draws()) for origin in origins]

    def notices(self, view: View, stretches: Sequence[Stretch]) -> Iterator[str]:
        if self.order != "random" and self.order_seed:
            yield f"{self.name}: order_seed has no effect on order={self.order}, only on random."


@register("continual")
@dataclass(frozen=True)
class Continual(Ordered):
    """Each corruption once, shuffled within, and clean images last."""

    after: ClassVar[str] = "CoTTA, debias"

    clean: bool = setting(
        True, "whether clean images come last", source="debias; other papers show none"
    )


@register("single")
@dataclass(frozen=True)
class Single(Continual):
    """As continual, one image at a time.

    One image has no batch statistics: adapt(…, window=W) has a method see the latest W of them.
    """

    after: ClassVar[str] = "SAR"

    batch: int = setting(1, "images in a batch", at_least=1, at_most=1, source="SAR")


@register("paced")
@dataclass(frozen=True)
class Paced(Continual):
    """As continual, at a speed that waits for no method.

    A method is busy from taking a batch until it asks for the next one. On CUDA the caller has to
    synchronise before it asks, else what is still to be computed counts for nothing. From the
    batch on that a resumed stream starts with, the method is not busy.
    """

    after: ClassVar[str] = "Alfarra et al."

    rate: float = setting(
        100, "images a second", at_least=1e-3, source="holdfast; the idea: Alfarra et al."
    )


@register("gradual")
@dataclass(frozen=True)
class Gradual(Ordered):
    """Each corruption at severities 1-2-3-4-5-4-3-2-1."""

    own_severities: ClassVar[bool] = True
    after: ClassVar[str] = "CoTTA, RMT"

    limit: int = limit_setting(
        "most images of each corruption at each severity, evenly picked; 0: all"
    )
    first: Literal["rising", "falling"] = setting(
        "rising",
        "the first corruption: 1 to 5 and back, or from 5 down",
        source="rising: RMT's code; falling: CoTTA",
    )

    def stretches(self, view: View, seed: int) -> Sequence[Stretch]:
        stretches = []
        for number, domain in enumerate(self.domains()):
            severities = [1, 2, 3, 4, 5, 4, 3, 2, 1]
            if number == 0 and self.first == "falling":
                severities = severities[4:]
            origins = [Origin.at((domain, severity)) for severity in severities]
            origins = [Origin(CLEAN)] if domain == CLEAN else origins
            stretches += [Stretch((origin,), view.size(origin), self.draws()) for origin in origins]
        return stretches


@register("mixed")
@dataclass(frozen=True)
class Mixed(Ordered):
    """All corruptions at once, pooled and shuffled."""

    after: ClassVar[str] = "SAR"

    def stretches(self, view: View, seed: int) -> Sequence[Stretch]:
        origins = tuple(Origin(domain) for domain in self.domains())
        return [Stretch(origins, sum(map(view.size, origins)), self.draws())]

    def notices(self, view: View, stretches: Sequence[Stretch]) -> Iterator[str]:
        yield from super().notices(view, stretches)
        if len(self.domains()) == 1:
            yield f"{self.name}: one domain alone is not mixed with any: name more."


@register("noisy")
@dataclass(frozen=True)
class Noisy(Ordered):
    """As many intruders among the images, not scored."""

    after: ClassVar[str] = "SoTTA"

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

    def stretches(self, view: View, seed: int) -> Sequence[Stretch]:
        stretches = []
        for domain in self.domains():
            origin = Origin(domain)
            size = view.size(origin)
            pool = self._pool(view, origin, size)
            intruders = Origin(f"{domain}/{self.kind}", intruder=pool, size=size)
            stretches.append(Stretch((origin, intruders), 2 * size, self.draws()))
        return stretches

    def _pool(self, view: View, origin: Origin, size: int) -> Pool:
        if self.kind == "uniform":
            return Uniform(size, view.pool(origin))
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


@register("endless")
@dataclass(frozen=True)
class Endless(Ordered):
    """One corruption fades into the next, for ever new pairs.

    Both severities move in steps of 0.25, one down and one up, and batches run across steps: a
    short one would tell where a step ends. CCC also keeps a reference
    network's accuracy level along the way, which asks for a table of that network's.
    """

    runs_on: ClassVar[bool] = True
    redraws: ClassVar[bool] = True
    own_severities: ClassVar[bool] = True
    after: ClassVar[str] = "CCC"

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
        fading, rising = (self.domains()[place] for place in chain[pair : pair + 2])
        origin = Origin.at((fading, self.severity - 0.25 * step), (rising, 0.25 * step))
        size = self.speed if number + 1 < count else self.total - number * self.speed
        return Stretch((origin,), size, partial(samplers.cycle, count=size))
