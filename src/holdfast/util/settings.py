"""Settings: what a frozen dataclass of them admits, and how a spec string writes them."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from inspect import get_annotations
from numbers import Real
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from holdfast.util.words import listed, nearest, shortened

Value = bool | int | float | str


@dataclass(frozen=True)
class ByClasses:
    """A default that follows from the model's number of classes, and how to write that down."""

    rule: Callable[[int], Value]
    text: str

    def __str__(self) -> str:
        return self.text


def setting(
    default: Value | ByClasses | None,
    meaning: str = "",
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    source: str = "",
    switch: tuple[str, str] | None = None,
) -> Any:
    """A field of a method: None until composition resolves it, with its default and its meaning.
    Without a meaning it is a base's setting, meaning and bounds, with another default. A default of
    None: it is unset unless somebody sets it (annotate it `float | None`).

    `source` says where the setting or its default comes from, where the whole has several;
    `switch` what true and false mean, where words are to choose from.

    Its annotation is the type of the resolved value, which a method's own code works with. To a
    person who has just made a method, a setting that was not given is None all the same, since
    what it will be is not known yet; `resolved` gives the value without a preset, `compose` with
    one, and `for_classes` what follows from the number of classes.

    >>> import holdfast
    >>> method = holdfast.Roid()
    >>> method.lr is None
    True
    >>> method.resolved().lr, holdfast.compose(method, preset="cifar100-c").host.lr
    (0.00025, 0.001)
    >>> method = holdfast.Eata().resolved()
    >>> method.redundancy is None, method.for_classes(1000).redundancy
    (True, 0.05)
    """
    bounds = {"at_least": at_least, "at_most": at_most}
    known = {"default": default, "meaning": meaning, "source": source}
    return field(default=None, metadata={**known, **bounds, "switch": switch})


@dataclass(frozen=True)
class Setting:
    """What one setting admits, and what it means."""

    method: str
    name: str
    kind: type
    choices: tuple[str, ...]
    default: Value | ByClasses | None
    meaning: str
    at_least: float | None
    at_most: float | None
    source: str = ""
    switch: tuple[str, str] | None = None

    def check(self, value: object) -> Value | None:
        """The value in the setting's own type, or an error that says what is admitted."""
        if value is None:
            return None
        if self.switch is not None and isinstance(value, bool):
            return self.switch[0] if value else self.switch[1]
        if self.kind is str and isinstance(value, str) and value in (self.choices or (value,)):
            return value
        if isinstance(value, bool):
            if self.kind is bool:
                return value
        elif isinstance(value, Real) and self._within(float(value)):
            if self.kind is float:
                return float(value)
            if self.kind is int and float(value).is_integer():
                return int(float(value))
        raise ValueError(f"{self.method}: {self.name} takes {self.admits()}, not {value!r}.")

    def read(self, text: str, quoted: bool) -> Value | None:
        """The value that a spec string writes as `text`; where words are meant, `none` is one."""
        if self.switch is not None and text.lower() in ("true", "false"):
            return self.check(text.lower() == "true")
        if quoted or self.kind is str:
            return self.check(text.lower() if text.lower() in self.choices else text)
        constants: dict[str, bool | None] = {"true": True, "false": False, "none": None}
        if text.lower() in constants:
            return self.check(constants[text.lower()])
        try:
            number = float(text)
        except ValueError:
            return self.check(text)
        return self.check(number)

    def admits(self) -> str:
        if self.choices:
            words = " or ".join(repr(choice) for choice in self.choices)
            on_and_off = "" if self.switch is None else "; true is {!r}, false {!r}"
            return words + on_and_off.format(*self.switch or ())
        noun = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}
        limits = [f"at least {self.at_least:g}"] if self.at_least is not None else []
        limits += [f"at most {self.at_most:g}"] if self.at_most is not None else []
        return " ".join([noun[self.kind], " and ".join(limits)]).strip()

    def _within(self, value: float) -> bool:
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        return math.isfinite(value) and low <= value <= high


def field_types(cls: type) -> dict[str, Any]:
    """The type of each field of a dataclass. Nothing else is looked at: Python 3.10 cannot read
    `name: ClassVar = …`."""
    names = {item.name for item in fields(cls)}
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        own = {name: hint for name, hint in get_annotations(base).items() if name in names}
        holder = type(base.__name__, (), {"__annotations__": own})
        # A class of a script that was run by path has no module to be found.
        found |= get_type_hints(holder, getattr(sys.modules.get(base.__module__), "__dict__", {}))
    return found


@dataclass(frozen=True)
class Settled:
    """Base of what is written `name(setting=value,…)`: every field is a `setting`."""

    name: ClassVar[str]
    # Where it is to be found, if not by its name.
    place: ClassVar[str] = ""

    @classmethod
    @cache
    def settings(cls) -> tuple[Setting, ...]:
        hints = field_types(cls)
        settings = []
        for item in fields(cls):
            hint = hints[item.name]
            if get_origin(hint) in (Union, UnionType):  # it may stay unset
                (hint,) = (kind for kind in get_args(hint) if kind is not NoneType)
            choices = get_args(hint) if get_origin(hint) is Literal else ()
            kind = str if choices else hint
            declared = [
                known.metadata
                for base in cls.__mro__
                for known in (fields(base) if is_dataclass(base) else ())
                if known.name == item.name
            ]
            whole = next((of_base for of_base in declared if of_base["meaning"]), item.metadata)
            metadata = {**whole, "default": item.metadata["default"]}
            settings.append(Setting(cls.name, item.name, kind, choices, **metadata))
        return tuple(settings)

    @property
    def given(self) -> dict[str, Value]:
        """The settings that are not None."""
        values = {declared.name: getattr(self, declared.name) for declared in self.settings()}
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        """Reads back as the same value."""
        return self.written(self.place or self.name)

    def written(self, name: str) -> str:
        """With its settings, under a name."""
        given = ",".join(f"{name}={_write(value)}" for name, value in self.given.items())
        return f"{name}({given})" if given else name


def _write(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not re.fullmatch(r"[\w.-]+", value):
        return f'"{value}"'
    return str(value)


_CLOSE = re.compile(r"\s*\)\s*")
_SETTING = re.compile(r"\s*(\w+)\s*=\s*(?:'([^']*)'|\"([^\"]*)\"|([^\s,()'\"=]+))\s*")


class SpecError(ValueError):
    """A spec string that breaks off from its grammar at some place."""

    def __init__(self, place: int, expected: str):
        super().__init__(place, expected)
        self.place = place
        self.expected = expected


def read_settings(
    spec: str, place: int, kind: type[Settled]
) -> tuple[dict[str, Value | None], int]:
    """What `name=value,…)` from this place on gives, and the place behind the bracket."""
    given: dict[str, Value | None] = {}
    settings = {declared.name: declared for declared in kind.settings()}
    closed = _CLOSE.match(spec, place)
    while not closed:
        pair = _SETTING.match(spec, place)
        if not pair:
            raise SpecError(place, "name=value")
        name, *quoted, bare = pair.groups()
        if name not in settings:
            raise ValueError(
                f"{kind.name} has no setting {name!r}.{nearest(name, settings)} "
                f"Its settings: {listed(settings, 99) or 'none'}."
            )
        if name in given:
            raise ValueError(
                f"{kind.name}: {name} is given twice in {shortened(spec)!r}: leave one out."
            )
        text = next((group for group in quoted if group is not None), bare)
        given[name] = settings[name].read(text, quoted=bare is None)
        place = pair.end()
        closed = _CLOSE.match(spec, place)
        if not closed:
            if spec[place : place + 1] != ",":
                raise SpecError(place, "',' or ')'")
            place += 1
    return given, closed.end()


def whole(value: Any, name: str, least: float = -math.inf, most: float = math.inf) -> int:
    """The value as int, 5.0 and np.int64(5) too; an error where it is none, or out of bounds."""
    is_number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if is_number and value == int(value) and least <= value <= most:
        return int(value)
    bounds = f" from {least:g}" if math.isfinite(least) else ""
    bounds += f" to {most:g}" if math.isfinite(most) else " on" if bounds else ""
    raise ValueError(f"{name} is a whole number{bounds}, not {value!r}.")
