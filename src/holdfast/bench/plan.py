"""What a run is: one method on one stream, and all else that decides its numbers."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import holdfast
from holdfast.data.corrupt.corruptions import CORRUPTIONS
from holdfast.data.readers.layouts import CLEAN
from holdfast.data.streams import Noisy, Stream, parse
from holdfast.engine.options import Precision
from holdfast.models.normalization import Normalization, parse_normalization
from holdfast.recipes.base import Method
from holdfast.recipes.compose import Composition, brief, compose
from holdfast.recipes.compose import parse as parse_method
from holdfast.util.hashing import text_hash
from holdfast.util.words import listed, nearest

# What a stream of single images is normalised over, unless told otherwise.
WINDOW = 64

# Where things lie, how fast they are read and what a run is for decides no number; the method and
# the stream, with all their settings, say others; the hash of the model covers its normalisation.
ELSEWHERE = ("root", "workers", "tags", "preset", "batch", "limit", "domains", "mean", "std")

SEVERITY = 5


@dataclass(frozen=True)
class Run:
    """One method on one stream over a data set, with one seed."""

    method: str
    """A spec string, such as eata+debias."""
    data: str = "glyphs-c"
    """What `holdfast.data.readers.sets.open_data` takes: a name or a path."""
    model: str | None = None
    """What `holdfast.models.find.find_model` takes; None: the one that comes with the data."""
    mean: str | None = None
    """Of the model's input normalisation, as in 0.485,0.456,0.406; None: the model's own."""
    std: str | None = None
    stream: str = "continual"
    """A spec string, such as correlated(gamma=0.1)."""
    source: str | None = None
    """A saved Source, or a clean set to make one from; None: what belongs to the data."""
    preset: str | None = None
    seed: int = 0
    batch: int | None = None
    limit: int | None = None
    domains: str | None = None
    """Names with commas between them: these alone come, in this order. None: the stream's own."""
    severity: int = SEVERITY
    window: int | None = None
    intruders: str | None = None
    images: str | None = None
    classes: str | None = None
    frost: str | None = None
    head: str | None = None
    device: str = "cpu"
    threads: int = 1
    precision: Precision | None = None
    analysis: bool = False
    root: str | None = None
    workers: int = 0
    tags: tuple[str, ...] = ()
    """What a reader should know of how it came to be, such as "chosen with labels"."""

    def __post_init__(self) -> None:
        for name in ("composition", "laid_out", "normalization"):
            getattr(self, name)  # what cannot be read is an error at once
        self._check_stream()
        if self.threads < 1:
            raise ValueError(f"threads is a number of threads, at least 1, not {self.threads}.")

    def __getstate__(self) -> dict[str, Any]:
        """What is given alone: another process loads methods of one's own by itself."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        """As they are written; what becomes of a file of one's own later does not count."""
        return parse_method(self.method)

    @cached_property
    def composition(self) -> Composition:
        """The method with every setting resolved."""
        return compose(*self.methods, preset=self.preset)

    @property
    def normalization(self) -> Normalization | None:
        """Mean and std that are to take the place of the model's own."""
        return parse_normalization(self.mean, self.std)

    @cached_property
    def laid_out(self) -> Stream:
        """The stream with the run's batch size, limit and domains."""
        stream = parse(self.stream)
        given: dict[str, Any] = {"batch": self.batch, "limit": self.limit}
        if self.domains is not None:
            taken = [name for name in ("order", "order_seed", "clean") if stream.given.get(name)]
            if taken:
                raise ValueError(
                    f"--domains {self.domains} says which domains come, and {taken[0]} of the "
                    f"stream {stream} says it too: leave out one of them."
                )
            given |= {"order": ",".join(read_domains(self.domains)), "clean": False}
        return replace(stream, **{name: v for name, v in given.items() if v is not None})

    def _check_stream(self) -> None:
        """What the stream would pass over in silence."""
        stream = self.laid_out
        if self.intruders is not None and getattr(stream, "kind", None) != "other":
            written = parse(self.stream)
            wanted = replace(written if isinstance(written, Noisy) else Noisy(), kind="other")
            raise ValueError(
                f"--intruders {self.intruders} would not be shown, since the stream is {stream}: "
                f"write --stream '{wanted}', or leave out --intruders."
            )
        if stream.own_severities and self.severity != SEVERITY:
            raise ValueError(
                f"--severity {self.severity} would not be used, since {stream.name} has "
                "severities of its own: leave it out; `holdfast card "
                f"{stream.name}` shows the stream's settings."
            )

    @property
    def shown(self) -> tuple[str, ...]:
        """The domains, in the order in which they come."""
        domains: tuple[str, ...] = getattr(self.laid_out, "domains", tuple)()
        return domains

    @property
    def sight(self) -> int | None:
        """Over how many images a method looks, where its batches are single images."""
        if self.window is None and self.laid_out.batch == 1:
            return WINDOW
        return self.window

    @property
    def title(self) -> str:
        """As a table names it: the method as it was written."""
        return brief(self.method)

    def settled(self) -> dict[str, object]:
        """All that decides the run's numbers, as plain values."""
        given = {name: value for name, value in asdict(self).items() if name not in ELSEWHERE}
        return {
            **given,
            "method": self.composition.named_spec,
            "stream": str(self.laid_out),
            "window": self.sight,
            "version": holdfast.__version__,
        }

    @property
    def identity(self) -> str:
        """The same of runs that are written in two ways, as far as it is known before the data and
        the model are opened."""
        elsewhere = [str(self.composition), self.root, self.normalization]
        return json.dumps([self.settled(), *elsewhere], sort_keys=True)

    def fingerprint(self, hashes: dict[str, str | None]) -> str:
        """A hash of all that decides the run's numbers; `hashes` are those of the model's weights,
        of the data and of the source, which count in place of their names."""
        text = json.dumps({**self.settled(), **hashes}, sort_keys=True)
        return text_hash(text)

    def folder(self, out: Path, fingerprint: str) -> Path:
        """The run's folder, whatever spelling of its method it was made under; else a new one,
        readable and safe on every file system."""
        mark = f"-s{self.seed}-{fingerprint[:10]}"
        there = sorted(out.glob(f"*{mark}"))
        slug = re.sub(r"[^\w+.=,-]+", "_", self.title).strip("_")[:60]
        return there[0] if there else out / f"{slug}{mark}"


def read_domains(text: str) -> list[str]:
    """The domains that a text names, with commas between them, in its order; clean images are
    `original`, or clean."""
    known = (*CORRUPTIONS, CLEAN)
    names = [CLEAN if name.strip() == "clean" else name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise ValueError(
                f"There is no domain {name!r}.{nearest(name, known)} Domains: {listed(known, 99)}; "
                "with commas between them."
            )
    return names
