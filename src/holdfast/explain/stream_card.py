"""All about a kind of stream, on one card; and the card of whatever has a name."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holdfast.data.streams import Continual, Stream, kinds
from holdfast.data.streams import parse as parse_stream
from holdfast.data.streams.papers import PAPERS
from holdfast.explain.card import Card, card
from holdfast.recipes.registry import methods
from holdfast.util.terminal import as_text, columns, facts
from holdfast.util.words import listed, nearest


@dataclass(frozen=True)
class StreamCard:
    """A stream with every setting: print it."""

    stream: Stream

    def __str__(self) -> str:
        return as_text(self)

    def __rich__(self) -> Group:
        table = columns("setting", "value", "from", "meaning", "takes", "source")
        for one in self.stream.settings():
            value = getattr(self.stream, one.name)
            origin = "written" if one.name in self.stream.given else "default"
            cells = (one.name, _write(value), origin, one.meaning, one.admits(), one.source)
            table.add_row(*map(Text, cells))
        domains: tuple[str, ...] = getattr(self.stream, "domains", tuple)()
        sentence, details = _describe(type(self.stream))
        return Group(
            Text.assemble((self.stream.name, "bold"), ", a stream"),
            Text(sentence),
            *([Text(f"\n{details}\n")] if details else []),
            table,
            facts({"after": self.stream.after, "domains": ", ".join(domains)}),
            Text("\nSources", "bold"),
            facts(self.papers),
        )

    @property
    def papers(self) -> dict[str, str]:
        """What the card cites, by the names that it uses."""
        cited = " ".join([self.stream.after, *(one.source for one in self.stream.settings())])
        found = {
            name: text for name, text in PAPERS.items() if re.search(rf"\b{re.escape(name)}", cited)
        }
        return found | {"holdfast": "a choice of this library's own"}


def _describe(kind: type[Stream]) -> tuple[str, str]:
    """A sentence, and what else there is to say."""
    sentence, _, details = (inspect.getdoc(kind) or "").partition("\n\n")
    return " ".join(sentence.split()), " ".join(details.split())


def _write(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def streams_table() -> Table:
    """One row a kind of stream; its own settings are those that continual has not, or has at other
    values."""
    table = columns("stream", "after", "what it shows", "settings of its own")
    usual = {one.name: one.default for one in Continual.settings()}
    for name, kind in kinds().items():
        own = [one for one in kind.settings() if usual.get(one.name) != one.default]
        written = ", ".join(f"{one.name}={_write(one.default)}" for one in own)
        table.add_row(*map(Text, (name, kind.after, _describe(kind)[0], written)))
    return table


def find_card(spec: str, preset: str | None = None) -> Card | StreamCard:
    """The card of a method, of a composition or of a stream: whichever has that name."""
    word = re.fullmatch(r"\s*([\w-]+)\s*(\(.*)?", spec, re.DOTALL)
    name = word[1].lower() if word else ""
    if name in kinds():
        if preset is not None:
            raise ValueError(f"{name} is a stream, and presets are of methods: leave out preset.")
        return StreamCard(parse_stream(spec))
    if name and name not in methods():
        known = [*methods(), *kinds()]
        raise ValueError(
            f"There is no method or stream {spec.strip()!r}.{nearest(name, known)} "
            f"Methods: {listed(methods(), 99)}. Streams: {listed(kinds(), 99)}."
        )
    return card(spec, preset)
