"""What a kind of stream is: its settings, and its spec string, such as `correlated(gamma=0.1)`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from holdfast.data.pools import Data, Pool
from holdfast.data.readers.layouts import CLEAN
from holdfast.data.streams.flow import Flow, Stretch
from holdfast.data.streams.papers import ordered
from holdfast.data.streams.view import Origin, View
from holdfast.util import samplers
from holdfast.util.samplers import Sampler
from holdfast.util.settings import Settled, SpecError, Value, read_settings, setting, whole
from holdfast.util.words import listed, nearest, shortened

_kinds: dict[str, type[Stream]] = {}
ORDER_MEANING = "paper, rotta, cotta0 to cotta9, random, or domains with commas between them"


def limit_setting(meaning: str) -> Any:
    """The setting `limit`, which says of each kind what it bounds there."""
    return setting(0, meaning, at_least=0, source="holdfast")


@dataclass(frozen=True)
class Stream(Settled):
    """Base of all streams, domain after domain: a subclass names its settings, and says where its
    samples come from and how they are drawn."""

    runs_on: ClassVar[bool] = False
    """Whether a batch goes on from one part into the next; otherwise each ends with a batch."""
    redraws: ClassVar[bool] = False
    """Whether an image may come again within a part: limit then bounds what is drawn, and not what
    it is drawn from."""
    own_severities: ClassVar[bool] = False
    """Whether it asks for severities itself, whatever the one that the data were opened at."""
    after: ClassVar[str]

    def __init_subclass__(cls, *, name: str, after: str) -> None:
        """Make a kind of stream known under a name; `after` are those in `papers.PAPERS` whose
        protocol it is, or holdfast."""
        cls.name, cls.after = name, after
        _kinds[name] = cls

    batch: int = setting(
        64, "images in a batch", at_least=1, source="64 in debias, RoTTA, PeTTA and CCC"
    )
    limit: int = limit_setting("most images of each domain, evenly picked; 0: all")
    rate: float = setting(
        0,
        "images a second; what comes while a method is busy is missed; 0: it waits",
        at_least=0,
        source="Alfarra et al.",
    )
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
        for field in self.settings():
            given = field.check(getattr(self, field.name))
            object.__setattr__(self, field.name, field.default if given is None else given)
        self.domains()  # an order that is not there is an error at once

    @property
    def given(self) -> dict[str, Value]:
        """The settings that are not at their defaults."""
        values = {field: getattr(self, field.name) for field in self.settings()}
        return {field.name: value for field, value in values.items() if value != field.default}

    def domains(self) -> tuple[str, ...]:
        return ordered(self.order, self.order_seed) + ((CLEAN,) if self.clean else ())

    def stretches(self, view: View, seed: int) -> Sequence[Stretch]:
        """The stream's parts, in order: each is drawn by itself."""
        parts = self.origins(view)
        return [Stretch(part, self.size(view, part), self.draws()) for part in parts]

    def origins(self, view: View) -> Sequence[tuple[Origin, ...]]:
        """Where the samples of each part come from."""
        return [(Origin(domain),) for domain in self.domains()]

    def size(self, view: View, origins: tuple[Origin, ...]) -> int:
        """How many samples of a part are shown."""
        return sum(map(view.size, origins))

    def draws(self) -> Sampler:
        return samplers.shuffle

    def notices(self, view: View, stretches: Sequence[Stretch]) -> Iterator[str]:
        """What to know before the stream is shown: where it is not what its name promises, or a
        setting has no effect."""
        if self.order != "random" and self.order_seed:
            yield f"{self.name}: order_seed has no effect on order={self.order}, only on random."

    @property
    def takes_intruders(self) -> bool:
        """Whether it mixes in images that are given to it."""
        return False

    def over(self, data: Data, *, seed: int = 0, intruders: Pool | Data | None = None) -> Flow:
        """The stream over a data set; `seed` decides every draw.

        `intruders` are the out-of-set images of a noisy stream: the same for all domains, or a
        data set with some for each. What one should know of the stream is a warning, and stands
        in the flow's `notices`.
        """
        if intruders is not None and not self.takes_intruders:
            raise ValueError(
                f"{self} takes no intruders, and some were given: write noisy(kind=other) for "
                "images of another set, noisy(kind=attack) for adversarial ones, or give none."
            )
        seed = whole(seed, "seed", 0)
        view = View(data, 0 if self.redraws else self.limit, intruders)
        stretches = self.stretches(view, seed)
        flow = Flow(
            self,
            view,
            stretches,
            batch=self.batch,
            seed=seed,
            rate=self.rate,
            runs_on=self.runs_on,
            notices=tuple(self.notices(view, stretches)),
        )
        for notice in flow.notices:
            warnings.warn(notice, stacklevel=2)
        return flow


def kinds() -> dict[str, type[Stream]]:
    """All kinds of stream by name."""
    return dict(sorted(_kinds.items()))


_KIND = re.compile(r"\s*([\w-]+)\s*")


def parse(spec: str) -> Stream:
    """The stream that a spec string names: kind, or kind(name=value,…).

    >>> from holdfast.data.streams import parse
    >>> parse("correlated(gamma=1, batch=16)").batch
    16
    """
    if not isinstance(spec, str):
        raise ValueError(
            f"A stream is written like 'correlated(gamma=0.1)', not {type(spec).__name__}."
        )
    match = _KIND.match(spec)
    name = match[1].lower() if match else ""
    if match and name not in _kinds:
        raise ValueError(
            f"There is no stream {shortened(match[1])!r}.{nearest(name, _kinds)} "
            f"Streams: {listed(kinds(), 99)}."
        )
    given: dict[str, Value | None] = {}
    position = match.end() if match else 0
    try:
        if match and spec[position : position + 1] == "(":
            given, position = read_settings(spec, position + 1, _kinds[name])
        if not match or spec[position:].strip():
            raise SpecError(position, "the end" if match else "a kind of stream")
    except SpecError as error:
        raise ValueError(
            f"Cannot read the stream {shortened(spec)!r} at character {error.place + 1}: expected "
            f"{error.expected}. A stream is written like correlated(gamma=0.1)."
        ) from None
    return _kinds[name](**cast(Any, given))
