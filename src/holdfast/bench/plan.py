"""What a run is: one method on one stream, and all else that decides its numbers."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import holdfast
from holdfast.data.streams import Stream, parse
from holdfast.nets.normalized import Normalization, parse_normalization
from holdfast.options import Precision
from holdfast.spec import Composition, compose

# What a stream of single images is normalised over, unless told otherwise.
WINDOW = 64

# Where things lie, how fast they are read and what a run is for decides no number; the method and
# the stream, with all their settings, say others; the hash of the model covers its normalisation.
ELSEWHERE = ("root", "workers", "tags", "preset", "batch", "limit", "mean", "std")


@dataclass(frozen=True)
class Run:
    """One method on one stream over a data set, with one seed."""

    method: str
    """A spec string, such as eata+debias."""
    data: str = "glyphs-c"
    """What `holdfast.data.sets.open_data` takes: a name or a path."""
    model: str | None = None
    """What `holdfast.nets.find.find_model` takes; None: the one that comes with the data."""
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
    severity: int = 5
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
        if self.threads < 1:
            raise ValueError(f"threads is a number of threads, at least 1, not {self.threads}.")

    @cached_property
    def composition(self) -> Composition:
        """The method with every setting resolved."""
        return compose(self.method, preset=self.preset)

    @property
    def normalization(self) -> Normalization | None:
        """Mean and std that are to take the place of the model's own."""
        return parse_normalization(self.mean, self.std)

    @cached_property
    def laid_out(self) -> Stream:
        """The stream with the run's batch size and limit."""
        given = {"batch": self.batch, "limit": self.limit}
        return replace(
            parse(self.stream),
            **{name: value for name, value in given.items() if value is not None},
        )

    @property
    def sight(self) -> int | None:
        """Over how many images a method looks, where its batches are single images."""
        if self.window is None and self.laid_out.batch == 1:
            return WINDOW
        return self.window

    @property
    def title(self) -> str:
        """As a table names it: the method as it was written."""
        return re.sub(r"\s", "", self.method)

    def settled(self) -> dict[str, object]:
        """All that decides the run's numbers, as plain values."""
        given = {name: value for name, value in asdict(self).items() if name not in ELSEWHERE}
        return {
            **given,
            "method": str(self.composition),
            "stream": str(self.laid_out),
            "window": self.sight,
            "version": holdfast.__version__,
        }

    @property
    def identity(self) -> str:
        """The same of runs that are written in two ways, as far as it is known before the data and
        the model are opened."""
        return json.dumps([self.settled(), self.root, self.normalization], sort_keys=True)

    def fingerprint(self, hashes: dict[str, str | None]) -> str:
        """A hash of all that decides the run's numbers; `hashes` are those of the model's weights,
        of the data and of the source, which count in place of their names."""
        text = json.dumps({**self.settled(), **hashes}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def folder(self, out: Path, fingerprint: str) -> Path:
        """The run's folder, whatever spelling of its method it was made under; else a new one,
        readable and safe on every file system."""
        mark = f"-s{self.seed}-{fingerprint[:10]}"
        there = sorted(out.glob(f"*{mark}"))
        slug = re.sub(r"[^\w+.=,-]+", "_", self.title).strip("_")[:60]
        return there[0] if there else out / f"{slug}{mark}"
