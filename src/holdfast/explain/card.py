"""All about a method or a composition, on one card."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from holdfast.recipes.base import CompositionContext, Method, Origin
from holdfast.recipes.compose import Composition, compose, parse
from holdfast.recipes.registry import methods
from holdfast.util.settings import ByClasses, Value
from holdfast.util.terminal import as_text, columns, facts
from holdfast.util.words import enumerated

TRAINS = {
    "nothing": "nothing",
    "norm": "scale and shift of the norm layers",
    "body": "all but the head",
    "all": "all",
}


@dataclass(frozen=True)
class Entry:
    """One setting: its value and where that comes from, what it means, what it takes."""

    name: str
    value: Value
    origin: Origin
    meaning: str
    takes: str


@dataclass(frozen=True)
class Part:
    """One method of a composition."""

    name: str
    role: str
    sentence: str
    equation: str
    paper: str
    note: str
    settings: tuple[Entry, ...]

    def __rich__(self) -> Group:
        rows = [
            (entry.name, write(entry.value), entry.origin, entry.meaning, entry.takes)
            for entry in self.settings
        ]
        table = columns("setting", "value", "from", "meaning", "takes", rows=rows)
        return Group(
            Text.assemble("\n", (self.name, "bold"), f", {self.role}"),
            Text(self.sentence),
            *([Padding(Text(self.equation), (0, 0, 0, 4))] if self.equation else []),
            *([table] if rows else []),
            facts({"paper": self.paper, "note": self.note}),
        )


@dataclass(frozen=True)
class Card:
    """A composition with every setting resolved: print it, or read its fields."""

    name: str
    preset: str | None
    trains: str
    needs: tuple[str, ...]
    predicts: str
    forwards: str
    backwards: str
    largest_batch: int | None
    """Of how many images a batch may be for these two to hold; None: of any number."""
    memory: str
    saves: str
    """What of single images its state file holds."""
    in_a_fleet: str
    """How several streams take their steps."""
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return as_text(self)

    def __rich__(self) -> Group:
        most = self.largest_batch
        bound = "" if most is None else f", of batches of up to {most} images"
        named = {
            "preset": self.preset or "",
            "trains": self.trains,
            "needs": f"{enumerated(self.needs or ('nothing',))} of the source",
            "predicts": self.predicts,
            "forwards a batch": self.forwards + bound,
            "backwards a batch": self.backwards + bound,
            "peak memory": self.memory,
            "state file holds": self.saves,
            "in a fleet": self.in_a_fleet,
        }
        return Group(Text(self.name, "bold"), facts(named), *self.parts)


def card(
    spec: str | tuple[Method, ...], preset: str | None = None, classes: int | None = None
) -> Card:
    """The card of a method or a composition, as in `card("eata+debias")`; with the number of
    classes, where that decides a setting."""
    written = parse(spec) if isinstance(spec, str) else spec
    method = compose(*written, preset=preset)
    if classes is not None:
        method = method.for_classes(classes)
    host = method.host
    unit = " an image" if host.episode_steps() else ""
    return Card(
        name=method.names,
        preset=preset,
        trains=TRAINS[host.selection().what] + host.trains_also,
        needs=method.needs,
        predicts=_predicts(method),
        forwards=_range(method.forwards) + unit,
        backwards=_range(method.backwards) + unit,
        largest_batch=host.largest_batch(),
        memory=_memory(method),
        saves=_saves(method),
        in_a_fleet=_in_a_fleet(method),
        parts=tuple(
            _part(resolved, given, context)
            for resolved, given, context in zip(
                method.methods, written, method.contexts, strict=True
            )
        ),
    )


def _part(resolved: Method, written: Method, context: CompositionContext) -> Part:
    origins = written.origins(context)
    sentence, equation = describe(type(resolved))
    role = "host" if context.host is None else "plug-in"
    return Part(
        name=resolved.name,
        role=role if resolved.standalone or role == "plug-in" else "plug-in, here its own host",
        sentence=sentence,
        equation=equation,
        paper=resolved.paper,
        note=resolved.noted(),
        settings=tuple(
            Entry(
                setting.name,
                resolved.given.get(setting.name, str(setting.default or "unset")),
                next((o for o, values in origins.items() if setting.name in values), "default"),
                setting.meaning,
                setting.admits(),
            )
            for setting in resolved.settings()
            if setting.name in resolved.given
            or setting.default is None
            or isinstance(setting.default, ByClasses)
        ),
    )


def describe(kind: type) -> tuple[str, str]:
    """The first sentence of a docstring, and what else there is to say."""
    sentence, _, details = (inspect.getdoc(kind) or "").partition("\n\n")
    return " ".join(sentence.split()), details


def write(value: object) -> str:
    """As a spec string has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _predicts(method: Composition) -> str:
    """Which logits leave, and whether they are log-probabilities."""
    logits = method.host.predicting()
    corrects = [part.name for part in method.methods if not part.keeps_probabilities()]
    if not corrects:
        return logits
    return f"{logits}; by {enumerated(corrects)} scores, whose softmax are no probabilities"


def _memory(method: Composition) -> str:
    """What a step takes at its peak beside the network itself."""
    backward = (
        "one forward and backward, the optimiser's state, and a copy of all that changes, for "
        "reset()"
    )
    most = backward if method.backwards[1] else "one forward"
    return "; ".join([most, *filter(None, (part.takes_memory() for part in method.methods))])


def _saves(method: Composition) -> str:
    """What of single images is in a file that `save` writes."""
    if any(part.keeps_images for part in method.methods):
        content = "images, those in its memory"
    elif any(part.keeps_samples for part in method.methods):
        content = "no images, but features of single images"
    else:
        content = "no images and no features of single images"
    return f"{content}; with window=W, the last W − 1 images. save(path, images=False): no images"


def _in_a_fleet(method: Composition) -> str:
    if method.groups:
        return "one grouped step, where all that trains is batch norm"
    return "one after the other"


def _range(fewest_and_most: tuple[int, int]) -> str:
    fewest, most = fewest_and_most
    return str(most) if fewest == most else f"{fewest} to {most}"


def by_kind() -> dict[str, type[Method]]:
    """All methods by name, hosts first and then plug-ins."""
    return dict(sorted(methods().items(), key=lambda item: not item[1].standalone))


def methods_table() -> Table:
    """One row a method, from its card; of a plug-in that needs a host, what it adds to that."""
    rows = []
    for name, method in by_kind().items():
        if not method.needs_host:
            traits = card(name)
            costs = (traits.forwards, traits.backwards)
            trains = traits.trains.replace(TRAINS["norm"], "norm layers")
        else:
            trains, resolved = "as its host", method().resolved()
            added = [resolved.extra_forwards() + count for count in resolved.forwards_beside()]
            costs = f"+{_range((added[0], added[1]))}", "+0"
        needs = ", ".join(method().resolved().needs()) or "nothing"
        rows.append((name, method.kind(), trains, needs, *costs, describe(method)[0]))
    headings = ("method", "kind", "trains", "needs", "forwards", "backwards", "what it does")
    return columns(*headings, rows=rows)
