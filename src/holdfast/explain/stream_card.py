"""All about a kind of stream, on one card; and the card of whatever has a name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holdfast.data.streams import Continual, Stream, kinds
from holdfast.data.streams import parse as parse_stream
from holdfast.data.streams.papers import PAPERS
from holdfast.explain.card import Card, card, describe, write
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
        rows = []
        for setting in self.stream.settings():
            name, value = setting.name, write(getattr(self.stream, setting.name))
            origin = "written" if name in self.stream.given else "default"
            rows.append((name, value, origin, setting.meaning, setting.admits(), setting.source))
        domains = self.stream.domains()
        sentence, details = describe(type(self.stream))
        return Group(
            Text.assemble((self.stream.name, "bold"), ", a stream"),
            Text(sentence),
            *([Text(f"\n{' '.join(details.split())}\n")] if details else []),
            columns("setting", "value", "from", "meaning", "takes", "source", rows=rows),
            facts({"after": self.stream.after, "domains": ", ".join(domains)}),
            Text("\nSources", "bold"),
            facts(self.papers),
        )

    @property
    def papers(self) -> dict[str, str]:
        """What the card cites, by the names that it uses."""
        sources = (setting.source for setting in self.stream.settings())
        cited = " ".join([self.stream.after, *sources])
        papers = {
            name: text for name, text in PAPERS.items() if re.search(rf"\b{re.escape(name)}", cited)
        }
        return papers | {"holdfast": "a choice of this library's own"}


def streams_table() -> Table:
    """One row a kind of stream; its own settings are those that continual has not, or has at other
    values."""
    usual = {setting.name: setting.default for setting in Continual.settings()}
    rows = []
    for name, kind in kinds().items():
        own = {s.name: s.default for s in kind.settings() if usual.get(s.name) != s.default}
        written = ", ".join(f"{setting}={write(value)}" for setting, value in own.items())
        rows.append((name, kind.after, describe(kind)[0], written))
    return columns("stream", "after", "what it shows", "settings of its own", rows=rows)


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
