"""A method: its settings, and the slots it fills."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from holdfast.learn import Descent
from holdfast.select import Select

if TYPE_CHECKING:
    from typing_extensions import Self

    from holdfast.task import Task
    from holdfast.terms import Term
    from holdfast.upkeep import Upkeep

Value = bool | int | float | str


def setting(
    default: Value, meaning: str, *, at_least: float | None = None, at_most: float | None = None
) -> Any:
    """A field of a method: None until composition resolves it, with its default and its meaning."""
    return field(
        default=None,
        metadata={"default": default, "meaning": meaning, "at_least": at_least, "at_most": at_most},
    )


@dataclass(frozen=True)
class Setting:
    """What one setting admits, and what it means."""

    method: str
    name: str
    kind: type
    choices: tuple[str, ...]
    default: Value
    meaning: str
    at_least: float | None
    at_most: float | None

    def check(self, value: object) -> Value | None:
        """The value in the setting's own type, or an error that says what is admitted."""
        if value is None:
            return None
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
            return " or ".join(repr(choice) for choice in self.choices)
        noun = {float: "a number", int: "a whole number", bool: "true or false", str: "a word"}
        limits = [f"at least {self.at_least:g}"] if self.at_least is not None else []
        limits += [f"at most {self.at_most:g}"] if self.at_most is not None else []
        return " ".join([noun[self.kind], " and ".join(limits)]).strip()

    def _within(self, value: float) -> bool:
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        return math.isfinite(value) and low <= value <= high


@dataclass(frozen=True)
class Method:
    """Base of all methods: a subclass names its settings and fills the slots it needs.

    A setting left at None is resolved on composition: what is written out wins, then what holds
    for a plug-in that is its own host (`alone`), then the preset, then the default.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    predicts: ClassVar[str] = "the adapted network's logits, before the update"
    note: ClassVar[str] = ""
    plugin: ClassVar[bool] = False
    learns: ClassVar[bool] = False
    # The fewest and the most forwards a batch takes, without those that terms add.
    forwards: ClassVar[tuple[int, int]] = (1, 1)
    backwards: ClassVar[int] = 0
    presets: ClassVar[Mapping[str, Mapping[str, Value]]] = {}
    alone: ClassVar[Mapping[str, Value]] = {}

    def __post_init__(self) -> None:
        for one in self.settings():
            object.__setattr__(self, one.name, one.check(getattr(self, one.name)))

    @classmethod
    @cache
    def settings(cls) -> tuple[Setting, ...]:
        hints = get_type_hints(cls)
        found = []
        for one in fields(cls):
            hint = hints[one.name]
            choices = get_args(hint) if get_origin(hint) is Literal else ()
            kind = str if choices else hint
            found.append(Setting(cls.name, one.name, kind, choices, **one.metadata))
        return tuple(found)

    @property
    def given(self) -> dict[str, Value]:
        """The settings that are not None: those written out, and all of them once resolved."""
        values = {one.name: getattr(self, one.name) for one in self.settings()}
        return {name: value for name, value in values.items() if value is not None}

    def resolved(
        self, preset: str | None = None, *, alone: bool = False, plugged: bool = False
    ) -> Self:
        """With every setting filled in; `plugged` into a host, all but those of the host."""
        values: dict[str, Value] = {one.name: one.default for one in self.settings()}
        values.update(self.presets.get(preset or "", {}))
        values.update(self.alone if alone else {})
        if plugged:
            values = {name: value for name, value in values.items() if name not in HOST_SETTINGS}
        values.update(self.given)
        return replace(self, **values)

    def __str__(self) -> str:
        written = ",".join(f"{name}={_write(value)}" for name, value in self.given.items())
        return f"{self.name}({written})" if written else self.name

    # The slots, asked of resolved values only.

    def selection(self) -> Select:
        """What trains, and how norm layers behave."""
        return Select("nothing", "source")

    def terms(self, task: Task) -> list[Term]:
        """What is minimised. A term of weight 0 is left out."""
        return []

    def learning(self) -> Descent | None:
        """How a step is taken; None: never."""
        return None

    def upkeep(self, task: Task) -> list[Upkeep]:
        """What follows a batch."""
        return []

    def needs(self) -> tuple[str, ...]:
        """What it takes from a Source: "prototypes", "fisher"."""
        return ()

    def always_drives(self) -> bool:
        """Whether some term of it makes a step happen on every batch."""
        return False

    def extra_forwards(self) -> int:
        """How many forwards its terms add to those of the host."""
        return 0


@dataclass(frozen=True)
class Learner(Method):
    """A method that takes gradient steps, on the norm layers unless `select` says otherwise."""

    learns: ClassVar[bool] = True
    backwards: ClassVar[int] = 1

    lr: float = setting(2.5e-4, "learning rate", at_least=0)
    momentum: float = setting(0.9, "momentum of SGD, first beta of Adam", at_least=0, at_most=0.999)
    optimizer: Literal["sgd", "adam"] = setting("sgd", "which optimiser takes the step")
    nesterov: bool = setting(False, "Nesterov's form of SGD's momentum")
    select: Literal["norm", "body", "all"] = setting(
        "norm", "what trains: norm layers' scale and shift, all but the head, or all"
    )

    def selection(self) -> Select:
        return Select(self.select, "batch")

    def learning(self) -> Descent:
        return Descent(self.lr, self.momentum, self.optimizer, self.nesterov)


# A plug-in has these too, for when it is its own host.
HOST_SETTINGS = frozenset(one.name for one in fields(Learner))


def _write(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not re.fullmatch(r"[\w.-]+", value):
        return f'"{value}"'
    return str(value)
