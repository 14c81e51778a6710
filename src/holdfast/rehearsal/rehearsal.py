"""`holdfast.rehearse`: labelled source images, minutes, and an answer."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from torch import nn

from holdfast.engine.network import Network
from holdfast.rehearsal.folder import Folder
from holdfast.rehearsal.images import part, read
from holdfast.rehearsal.plan import candidates
from holdfast.rehearsal.scenes import scenes
from holdfast.rehearsal.session import Session, Setting, Tell
from holdfast.rehearsal.standing import Standing, conclude
from holdfast.rehearsal.tables import NOTE, blocks, standings_table, streams_table
from holdfast.results.table import Block, Table
from holdfast.source.source import Source
from holdfast.util.settings import whole

MINUTES = 10.0


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal found: `adapt(model, rehearsal.method, source=rehearsal.source)`."""

    method: str
    """A spec string; "frozen" where adapting is not worth it."""
    sentence: str
    """The recommendation."""
    alike: tuple[str, ...]
    """All that is as good as the best within error."""
    standings: tuple[Standing, ...]
    """What is known of each method, the best first."""
    unfit: Mapping[str, str]
    """Methods that could not be set up on the model, and why."""
    source: Source = field(repr=False, compare=False)
    """Made of the images that were not streamed."""

    @property
    def ruled_out(self) -> dict[str, str]:
        """Every other method, and why it is not the one."""
        reasons = {
            standing.method: standing.why
            for standing in self.standings
            if standing.method != self.method
        }
        return reasons | {name: f"does not fit: {why}" for name, why in self.unfit.items()}

    @property
    def table(self) -> Table:
        return standings_table(self.standings, self.method)

    @property
    def streams(self) -> Table:
        """Accuracy by stream."""
        return streams_table(self.standings)

    def document(self) -> list[Block]:
        """All of it, to be shown or written down."""
        return blocks(self.sentence, self.table, self.streams, self.ruled_out)

    def __str__(self) -> str:
        return self.sentence

    def page(self) -> str:
        """One HTML file that needs no other."""
        from holdfast.report.rehearsed import Gain, page

        last = [standing for standing in self.standings if standing.rung == self.standings[0].rung]
        gains = [
            Gain(standing.method, standing.gain.mean, standing.gain.margin)
            for standing in last
            if standing.gain
        ]
        return page(self.sentence, gains, [self.table, self.streams], self.ruled_out, NOTE)


def rehearse(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    minutes: float = MINUTES,
    methods: Sequence[str] = (),
    streams: Sequence[str] = (),
    batch: int = 64,
    severities: Sequence[int] = (1, 3, 5),
    images: int | None = None,
    head: str | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    resume: bool = False,
    tell: Tell = lambda line: None,
) -> Rehearsal:
    """Which method suits this model, and is it worth it? Found on labelled source images, before
    there is a stream: `adapt(model, rehearsal.method, source=rehearsal.source)`.

    loader: yields (images, labels) that the model was not trained on, float in [0, 1]. One half
        tells of the source, the other is shown under the four hold-out corruptions.
    minutes: how long it may take.
    methods: spec strings; each is tried with the settings that it tunes. frozen and bn always are.
    streams: "clean", "continual", "small batches", "correlated", "recurring", or spec strings of
        streams; default: these five. Name those that you expect.
    batch: images that come at a time. severities: of the corruptions.
    images: how many of the loader's are read at most; default: 4,000, or 4 for each class.
    head: name of the layer that maps features to logits; default: the last `nn.Linear`.
    folder: where all of it is kept, so that resume=True goes on with what was stopped.
    tell: hears what is being done, in lines.

    >>> import holdfast
    >>> from holdfast.data import glyphs
    >>> model, loader = glyphs.model(), glyphs.source_loader(400)
    >>> rehearsal = holdfast.rehearse(model, loader, methods=["bn"], streams=["continual"])
    >>> rehearsal.method
    'bn'
    >>> adapter = holdfast.adapt(model, rehearsal.method, source=rehearsal.source)
    """
    start = monotonic()
    if not (math.isfinite(minutes) and minutes > 0):
        raise ValueError(f"minutes is a number above 0, not {minutes!r}.")
    batch = whole(batch, "batch", 2)
    if not severities:
        raise ValueError("severities are one or more whole numbers from 1 to 5, not none.")
    setting = Setting(
        methods=tuple(candidates(_words(methods, "methods"))),
        scenes=scenes(_words(streams, "streams"), batch),
        severities=tuple(
            dict.fromkeys(whole(severity, "severity", 1, 5) for severity in severities)
        ),
        batch=batch,
        minutes=float(minutes),
        head=head,
        seed=whole(seed, "seed", 0),
    )
    limit = None if images is None else whole(images, "images", 1)
    parts = part(read(loader, Network(model, head=head).classes, limit, batch), setting.seed)
    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = Folder(Path(folder))
        made_of = setting.made_of(model, parts)
        plan = store.plan(made_of, resume=resume)
        session = Session(model, parts, setting, store, tell)
        session.open_source(stored=plan is not None)
        if plan is None:
            plan = session.make_plan(made_of, start)
        conclusion = conclude(session.perform(plan))
        rehearsal = Rehearsal(
            conclusion.choice.method,
            conclusion.choice.sentence,
            conclusion.choice.alike,
            conclusion.standings,
            plan["unfit"],
            session.source,
        )
        if not store.finished:
            store.keep_end(_as_json(rehearsal, plan))
    return rehearsal


def _as_json(rehearsal: Rehearsal, plan: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "sentence": rehearsal.sentence,
        "method": rehearsal.method,
        "alike": rehearsal.alike,
        "standings": [asdict(standing) for standing in rehearsal.standings],
        "ruled_out": rehearsal.ruled_out,
        "rungs": plan["rungs"],
        "made_of": plan["made_of"],
    }


def _words(given: Sequence[str], name: str) -> Sequence[str]:
    if isinstance(given, str) or not all(isinstance(text, str) for text in given):
        raise ValueError(f"{name} is a list of texts, not {given!r}: write {name}=[…].")
    return given
