"""Spec strings such as `eata(lr=0.001)+debias`, the registry of methods, and their composition."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TypeVar

from holdfast.method import HOST_SETTINGS, Company, Method
from holdfast.settings import SpecError, Value, read_settings
from holdfast.words import listed, nearest

PRESETS = ("cifar100-c", "imagenet-c")

_registry: dict[str, type[Method]] = {}

M = TypeVar("M", bound=type[Method])


def register(name: str) -> Callable[[M], M]:
    """Class decorator: make a method known under a name."""

    def enter(method: M) -> M:
        method.name = name
        _registry[name] = method
        return method

    return enter


def methods() -> dict[str, type[Method]]:
    """All methods by name. The classes carry the traits that `holdfast card` shows."""
    import_module("holdfast.recipes")  # registers all; they import this module, so not before
    return dict(sorted(_registry.items()))


def find(name: str) -> type[Method]:
    known = methods()
    if name.lower() not in known:
        raise ValueError(
            f"There is no method {name!r}.{nearest(name, known)} Methods: {listed(known, 99)}."
        )
    return known[name.lower()]


_METHOD = re.compile(r"\s*([\w-]+)\s*")


def parse(spec: str) -> tuple[Method, ...]:
    """The methods that a spec string names: host(name=value,…)+plugin(name=value,…)."""
    found = []
    place = 0
    while True:
        word = _METHOD.match(spec, place)
        if not word:
            raise _unreadable(spec, place, "a method's name")
        method, place = find(word[1]), word.end()
        given: dict[str, Value | None] = {}
        if spec[place : place + 1] == "(":
            try:
                given, place = read_settings(spec, place + 1, method)
            except SpecError as error:
                raise _unreadable(spec, error.place, error.expected) from None
        found.append(method(**given))
        if not spec[place:].strip():
            return tuple(found)
        if spec[place] != "+":
            raise _unreadable(spec, place, "'+' and a plug-in, or the end")
        place += 1


def _unreadable(spec: str, place: int, expected: str) -> ValueError:
    found = repr(spec[place:]) if place < len(spec) else "the end"
    return ValueError(
        f"Cannot read the method {spec!r} at character {place + 1}: expected {expected}, found "
        f"{found}. A method is written like eata(lr=0.001)+debias(alpha=0.99)."
    )


@dataclass(frozen=True)
class Composition:
    """A host with its plug-ins, every setting resolved; and where each stands among the others."""

    host: Method
    plugins: tuple[Method, ...] = ()
    company: tuple[Company, ...] = field(default=(), compare=False, repr=False)

    @property
    def methods(self) -> tuple[Method, ...]:
        return (self.host, *self.plugins)

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(need for one in self.methods for need in one.needs()))

    @property
    def forwards(self) -> tuple[int, int]:
        extra = sum(one.extra_forwards() for one in self.methods)
        fewest, most = self.host.forwards()
        passes = self.host.passes()
        return fewest + passes[0] * extra, most + passes[1] * extra

    @property
    def backwards(self) -> tuple[int, int]:
        always = self.host.passes()[0] and any(one.always_drives() for one in self.methods)
        return (self.host.backwards if always else 0), self.host.backwards

    def for_classes(self, classes: int) -> Composition:
        """With the settings that follow from the model's number of classes."""
        host, *plugins = (one.for_classes(classes) for one in self.methods)
        return replace(self, host=host, plugins=tuple(plugins))

    def advice(self, classes: int) -> list[str]:
        """What someone with so many classes should know before using these settings."""
        return [text for one in self.for_classes(classes).methods if (text := one.advice(classes))]

    def __str__(self) -> str:
        """With every setting written out; reads back as the same composition."""
        return "+".join(str(one) for one in self.methods)

    @property
    def names(self) -> str:
        return "+".join(one.name for one in self.methods)


def compose(*parts: str | Method, preset: str | None = None) -> Composition:
    """Read the parts, check that they go together, and resolve their settings."""
    if not parts:
        raise ValueError(
            f"Name a method, as in adapt(model, 'tent'). Methods: {listed(methods())}."
        )
    if preset is not None and preset not in PRESETS:
        raise ValueError(
            f"There is no preset {preset!r}.{nearest(preset, PRESETS)} "
            f"Presets: {', '.join(PRESETS)}, or None for a model of your own."
        )
    read: list[Method] = []
    for part in parts:
        if isinstance(part, Method):
            read.append(part)
        elif isinstance(part, str):
            read += parse(part)
        else:
            raise ValueError(f"A method is a spec string or a typed value, not {part!r}.")
    host, plugins = read[0], tuple(read[1:])
    _check_company(host, plugins)
    alone = not host.standalone
    as_plugin = Company(preset, host=host.name, alone=alone)
    resolved = tuple(one.resolved(as_plugin) for one in plugins)
    as_host = Company(preset, plugins=resolved, alone=alone)
    company = (as_host, *(as_plugin for _ in plugins))
    return Composition(host.resolved(as_host), resolved, company)


def _check_company(host: Method, plugins: tuple[Method, ...]) -> None:
    names = [one.name for one in (host, *plugins)]
    for plugin in plugins:
        if not plugin.plugin:
            other = f": write {plugin.name}+{host.name}" if host.plugin else ""
            raise ValueError(
                f"{plugin.name} is a host, not a plug-in, so it cannot follow {host.name}{other}. "
                f"Plug-ins: {listed(n for n, one in methods().items() if one.plugin)}."
            )
        if not host.learns:
            raise ValueError(
                f"{host.name} never takes a step, so {plugin.name} has nothing to act on: write "
                f"{plugin.name} alone, or put it on a method that learns, as in tent+{plugin.name}."
            )
        shared = plugin.given.keys() & HOST_SETTINGS
        if shared:
            raise ValueError(
                f"{listed(sorted(shared))} is the host's to set: write "
                f"{host.name}({min(shared)}=…)+{plugin.name}."
            )
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"{listed(sorted(twice))} appears twice in {'+'.join(names)}.")
