"""Spec strings such as `eata(lr=0.001)+debias` or `file.py:Method+debias`; what they compose."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from holdfast.engine.blend import ByBlend
from holdfast.engine.norms import ByBatch, BySource
from holdfast.recipes.base import HOST_SETTINGS, CompositionContext, Method
from holdfast.recipes.registry import find, methods
from holdfast.util.settings import SpecError, Value, read_settings
from holdfast.util.words import listed, nearest, shortened

PRESETS = ("cifar100-c", "imagenet-c")


# A name; or a place, whose file may lie on a drive; or the file alone, which is a mistake. What
# separates methods is in no place.
_FILE = r"(?:[A-Za-z]:(?=[\\/]))?[^+():'\"]+"
_METHOD = re.compile(rf"\s*({_FILE}:\s*\w+|{_FILE}\.py\b|[\w-]+)\s*")

Find = Callable[[str], type[Method]]


def parse(spec: str, find: Find = find) -> tuple[Method, ...]:
    """The methods that a spec string names: host(name=value,…)+plugin(name=value,…)."""
    return tuple(method(**given) for method, given, _ in _read(spec, find))


def brief(spec: str) -> str:
    """As it is written, without spaces; a user's own methods by name: their places are long."""
    return "+".join(re.sub(r"\s", "", text) for _, _, text in _read(spec, find))


def _read(spec: str, find: Find) -> Iterator[tuple[type[Method], dict[str, Value | None], str]]:
    """Each method with what is given of its settings, and how it is written."""
    position = 0
    while True:
        word = _METHOD.match(spec, position)
        if not word:
            raise _unreadable(spec, position, "a method's name")
        method, position = find(word[1]), word.end()
        given: dict[str, Value | None] = {}
        if spec[position : position + 1] == "(":
            try:
                given, position = read_settings(spec, position + 1, method)
            except SpecError as error:
                raise _unreadable(spec, error.place, error.expected) from None
        name = method.name if ":" in word[1] else word[1]
        yield method, given, name + spec[word.end() : position]
        if not spec[position:].strip():
            return
        if spec[position] != "+":
            raise _unreadable(spec, position, "'+' and a plug-in, or the end")
        position += 1


def _unreadable(spec: str, position: int, expected: str) -> ValueError:
    text = repr(shortened(spec[position:])) if position < len(spec) else "the end"
    return ValueError(
        f"Cannot read the method {shortened(spec)!r} at character {position + 1}: expected "
        f"{expected}, found {text}. A method is written like eata(lr=0.001)+debias(alpha=0.99)."
    )


@dataclass(frozen=True)
class Composition:
    """A host with its plug-ins, every setting resolved; and where each stands among the others."""

    host: Method
    plugins: tuple[Method, ...] = ()
    contexts: tuple[CompositionContext, ...] = field(default=(), compare=False, repr=False)

    @property
    def methods(self) -> tuple[Method, ...]:
        return (self.host, *self.plugins)

    @property
    def needs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(need for method in self.methods for need in method.needs()))

    @property
    def by_batch(self) -> bool:
        """Whether a batch is normalised by itself, so that one image alone has nothing to go by."""
        single = any(method.serves_single for method in self.methods)
        return self.host.selection().statistics.by_batch and not single

    @property
    def groups(self) -> bool:
        """Whether several streams can take a step at once: all that differs between them is in
        batch norm."""
        select = self.host.selection()
        known = type(select.statistics) in (ByBatch, BySource, ByBlend)
        return (
            known
            and select.what in ("nothing", "norm")
            and all(method.can_group() for method in self.methods)
        )

    @property
    def forwards(self) -> tuple[int, int]:
        """The fewest and the most, of a batch; in episodes, of each of its images."""
        extra = self.rounds * sum(method.extra_forwards() for method in self.methods)
        beside = [method.forwards_beside() for method in self.plugins]
        fewest, most = (sum(counts) for counts in zip(self.host.forwards(), *beside, strict=True))
        at_least, at_most = self.host.passes
        return fewest + at_least * extra, most + at_most * extra

    @property
    def backwards(self) -> tuple[int, int]:
        always = self.host.passes[0] and any(method.always_drives() for method in self.methods)
        most = self.rounds * self.host.backwards
        return (most if always else 0), most

    @property
    def rounds(self) -> int:
        """How often terms are asked of what is learnt from: of a batch, or of each image."""
        return self.host.episode_steps() or 1

    def for_classes(self, classes: int) -> Composition:
        """With the settings that follow from the model's number of classes."""
        host, *plugins = (method.for_classes(classes) for method in self.methods)
        return replace(self, host=host, plugins=tuple(plugins))

    def advice(self, classes: int) -> list[str]:
        """What someone with so many classes should know before using these settings."""
        return [
            text for method in self.for_classes(classes).methods if (text := method.advice(classes))
        ]

    def __str__(self) -> str:
        """With every setting written out; reads back as the same composition."""
        return "+".join(str(method) for method in self.methods)

    @property
    def named_spec(self) -> str:
        """The same by names alone, wherever methods of one's own lie."""
        return "+".join(method.written(method.name) for method in self.methods)

    @property
    def names(self) -> str:
        return "+".join(method.name for method in self.methods)


def compose(*parts: str | Method, preset: str | None = None) -> Composition:
    """Read the parts, check that they go together, and resolve their settings.

    >>> import holdfast
    >>> method = holdfast.compose("tent", "debias(alpha=0.9)", preset="cifar100-c")
    >>> method.host.lr, method.plugins[0].alpha
    (0.0001, 0.9)
    """
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
    for conflict in filter(None, (method.conflict() for method in read)):
        raise ValueError(conflict)
    _check_fit(host, plugins)
    alone = not host.standalone
    as_plugin = CompositionContext(preset, host=host.name, alone=alone)
    resolved = tuple(method.resolved(as_plugin) for method in plugins)
    as_host = CompositionContext(preset, plugins=resolved, alone=alone)
    contexts = (as_host, *(as_plugin for _ in plugins))
    composition = Composition(host.resolved(as_host), resolved, contexts)
    objections = [composition.host.objection(None)] if alone else []
    for index, plugin in enumerate(resolved):
        objections += [plugin.objection(composition.host), plugin.objection_after(resolved[:index])]
    for objection in filter(None, objections):
        raise ValueError(objection)
    return composition


def _check_fit(host: Method, plugins: tuple[Method, ...]) -> None:
    names = [method.name for method in (host, *plugins)]
    for plugin in plugins:
        if not plugin.plugin:
            advice = f": write {plugin.name}+{host.name}" if host.plugin else ""
            raise ValueError(
                f"{plugin.name} is a host, not a plug-in, so it cannot follow {host.name}{advice}. "
                f"Plug-ins: {listed(n for n, method in methods().items() if method.plugin)}."
            )
        shared = plugin.given.keys() & HOST_SETTINGS
        if shared:
            raise ValueError(
                f"{listed(sorted(shared))} is the host's to set: write "
                f"{host.name}({min(shared)}=…)+{plugin.name}."
            )
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(
            f"{listed(sorted(twice))} appears twice in {shortened('+'.join(names))}: leave one out."
        )
