"""What a kind of stream is: its settings, and its spec string, such as `correlated(gamma=0.1)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from holdfast.method import Setting, Value, _write, setting
from holdfast.spec import _parse_settings
from holdfast.words import listed, nearest

if TYPE_CHECKING:
    from holdfast.data.pools import Data, Pool
    from holdfast.data.streams.flow import Flow, Stretch
    from holdfast.data.streams.view import View


@dataclass(frozen=True)
class Stream:
    """Base of all streams: a subclass names its settings and says how its samples are laid out."""

    name: ClassVar[str]
    paper: ClassVar[str] = ""

    batch: int = setting(64, "images in a batch", at_least=1)
    limit: int = setting(0, "images of each domain, evenly picked; 0: all", at_least=0)
    rate: float = setting(
        0, "images a second; what comes while a method is busy is missed; 0: it waits", at_least=0
    )

    def __post_init__(self) -> None:
        for one in self.settings():
            given = one.check(getattr(self, one.name))
            object.__setattr__(self, one.name, one.default if given is None else given)

    @classmethod
    @cache
    def settings(cls) -> tuple[Setting, ...]:
        hints = get_type_hints(cls)
        found = []
        for one in fields(cls):
            hint = hints[one.name]
            choices = get_args(hint) if get_origin(hint) is Literal else ()
            found.append(
                Setting(cls.name, one.name, str if choices else hint, choices, **one.metadata)
            )
        return tuple(found)

    @property
    def given(self) -> dict[str, Value]:
        """The settings that are not at their defaults."""
        values = {one: getattr(self, one.name) for one in self.settings()}
        return {one.name: value for one, value in values.items() if value != one.default}

    def __str__(self) -> str:
        """Reads back as the same value."""
        written = ",".join(f"{name}={_write(value)}" for name, value in self.given.items())
        return f"{self.name}({written})" if written else self.name

    def stretches(self, view: View, seed: int) -> Sequence[Stretch]:
        """The stream's parts, in order: each is drawn and batched by itself."""
        raise NotImplementedError

    def over(self, data: Data, *, seed: int = 0, intruders: Pool | None = None) -> Flow:
        """The stream over a data set; `seed` decides every draw.

        `intruders` are the out-of-set images of a noisy stream.
        """
        from holdfast.data.streams.flow import Flow
        from holdfast.data.streams.view import View

        return Flow(self, View(data, self.limit, intruders), seed)


_kinds: dict[str, type[Stream]] = {}

S = TypeVar("S", bound=type[Stream])


def register(name: str) -> Callable[[S], S]:
    """Class decorator: make a kind of stream known under a name."""

    def enter(kind: S) -> S:
        kind.name = name
        _kinds[name] = kind
        return kind

    return enter


def kinds() -> dict[str, type[Stream]]:
    """All kinds of stream by name."""
    return dict(sorted(_kinds.items()))


_PAIR = r"\s*\w+\s*=\s*(?:'[^']*'|\"[^\"]*\"|[^\s,()'\"=]+)\s*"
_STREAM = re.compile(rf"\s*([\w-]+)\s*(\(\s*(?:{_PAIR}(?:,{_PAIR})*)?\)\s*)?")


def parse(spec: str) -> Stream:
    """The stream that a spec string names: kind, or kind(name=value,…)."""
    found = _STREAM.fullmatch(spec)
    if not found:
        raise ValueError(
            f"Cannot read the stream {spec!r}. A stream is written like correlated(gamma=0.1): "
            "a kind, and in brackets its settings as name=value."
        )
    name = found[1].lower()
    if name not in _kinds:
        raise ValueError(
            f"There is no stream {found[1]!r}.{nearest(name, _kinds)} "
            f"Streams: {listed(kinds(), 99)}."
        )
    kind = _kinds[name]
    given: dict[str, Value | None] = {}
    if found[2]:
        # The methods' own reader: a stream has what it asks of a method, a name and settings.
        _parse_settings(spec, found.start(2) + 1, cast(Any, kind), given)
    return kind(**cast(Any, given))
