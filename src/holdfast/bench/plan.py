"""What a run is: one method on one stream, and all else that decides its numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import holdfast
from holdfast.bench.compared import NOT_IN_FINGERPRINT
from holdfast.bench.options import OPTIONS, SEVERITY, RunOptions
from holdfast.data.corrupt.corruptions import EVERY
from holdfast.data.readers.layouts import CLEAN
from holdfast.data.streams import Noisy, Stream, parse
from holdfast.engine.health import HealthOptions
from holdfast.models.normalization import Normalization, parse_normalization
from holdfast.recipes.base import Method
from holdfast.recipes.compose import Composition, brief, compose
from holdfast.recipes.compose import parse as parse_method
from holdfast.util.files import text_hash
from holdfast.util.words import listed, nearest

# What a stream of single images is normalised over, unless told otherwise.
WINDOW = 64


@dataclass(frozen=True)
class Run(RunOptions):
    """One method on one stream over a data set, with one seed."""

    def __post_init__(self) -> None:
        for name in ("composition", "resolved_stream", "normalization", "health_options"):
            getattr(self, name)  # what cannot be read is an error at once
        self._check_stream()
        if self.watch.guard == "fallback" and not self.watch.health:
            raise ValueError(
                "--guard fallback goes by health, which --no-health leaves out: leave out one of "
                "them, or take --guard rollback."
            )
        if self.watch.validation is not None and not self.watch.health:
            raise ValueError(
                "--validation is for estimates of health, which --no-health leaves out: leave out "
                "one of them."
            )
        threads = self.machine.threads
        if threads < 1:
            raise ValueError(f"threads is a number of threads, at least 1, not {threads}.")

    def __getstate__(self) -> dict[str, Any]:
        """Only the options: another process loads a user's own methods by itself."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        """As they are written; later changes to a user's own file do not count."""
        return parse_method(self.method)

    @cached_property
    def composition(self) -> Composition:
        """The method with every setting resolved."""
        return compose(*self.methods, preset=self.preset)

    @property
    def normalization(self) -> Normalization | None:
        """Mean and std that are to take the place of the model's own."""
        return parse_normalization(self.model.mean, self.model.std)

    @property
    def health_options(self) -> HealthOptions:
        watch = self.watch
        return HealthOptions(watch.estimator, watch.every, watch.level)

    @cached_property
    def resolved_stream(self) -> Stream:
        """The stream with the run's batch size, limit and domains."""
        stream = parse(self.stream.spec)
        given: dict[str, Any] = {"batch": self.stream.batch, "limit": self.stream.limit}
        if self.stream.domains is not None:
            taken = [name for name in ("order", "order_seed", "clean") if stream.given.get(name)]
            if taken:
                raise ValueError(
                    f"--domains {self.stream.domains} says which domains come, and {taken[0]} of "
                    f"the stream {stream} says it too: leave out one of them."
                )
            given |= {"order": ",".join(read_domains(self.stream.domains)), "clean": False}
        return replace(stream, **{name: v for name, v in given.items() if v is not None})

    def _check_stream(self) -> None:
        """Errors for options that the stream would silently ignore."""
        stream, intruders = self.resolved_stream, self.stream.intruders
        if intruders is not None and getattr(stream, "kind", None) != "other":
            written = parse(self.stream.spec)
            wanted = replace(written if isinstance(written, Noisy) else Noisy(), kind="other")
            raise ValueError(
                f"--intruders {intruders} would not be shown, since the stream is {stream}: "
                f"write --stream '{wanted}', or leave out --intruders."
            )
        if stream.own_severities and self.data.severity != SEVERITY:
            raise ValueError(
                f"--severity {self.data.severity} would not be used, since {stream.name} has "
                "severities of its own: leave it out; `holdfast card "
                f"{stream.name}` shows the stream's settings."
            )

    @property
    def shown(self) -> tuple[str, ...]:
        """The domains, in the order in which they come."""
        domains: tuple[str, ...] = getattr(self.resolved_stream, "domains", tuple)()
        return domains

    @property
    def effective_window(self) -> int | None:
        """Over how many images a method looks; None: over those of a batch."""
        given = self.stream.window
        return self.usual_window if given is None else given or None

    @property
    def usual_window(self) -> int | None:
        """The same, where nothing is said of it."""
        in_episodes = self.composition.host.episode_steps() > 0
        return WINDOW if self.resolved_stream.batch == 1 and not in_episodes else None

    @property
    def as_used(self) -> dict[str, Any]:
        """The flat options, with the window that was used where none was given; 0 says that there
        is none where there usually would be one."""
        none = None if self.usual_window is None else 0
        return {**self.flat, "window": self.effective_window or none}

    @property
    def title(self) -> str:
        """As a table names it: the method as it was written."""
        return brief(self.method)

    def fingerprint_fields(self) -> dict[str, object]:
        """All that decides the run's numbers, as plain values."""
        given = {n: value for n, value in self.as_used.items() if n not in NOT_IN_FINGERPRINT}
        return {
            **given,
            "method": self.composition.named_spec,
            "stream": str(self.resolved_stream),
            "version": holdfast.__version__,
        }

    @property
    def identity(self) -> str:
        """The same for a run that is written in two ways, as far as it is known before the data and
        the model are opened."""
        elsewhere = [str(self.composition), self.data.root, self.normalization]
        return json.dumps([self.fingerprint_fields(), *elsewhere], sort_keys=True)

    def fingerprint(self, hashes: dict[str, str | None]) -> str:
        """A hash of all that decides the run's numbers; `hashes` are those of the model's weights,
        of the data and of the source, which count in place of their names."""
        return text_hash(json.dumps({**self.fingerprint_fields(), **hashes}, sort_keys=True))

    def folder(self, out: Path, fingerprint: str) -> Path:
        """The run's folder, whatever spelling of its method it was made under; else a new one,
        readable and safe on every file system."""
        mark = f"-s{self.seed}-{fingerprint[:10]}"
        existing = sorted(out.glob(f"*{mark}"))
        slug = re.sub(r"[^\w+.=,-]+", "_", self.title).strip("_")[:60]
        return existing[0] if existing else out / f"{slug}{mark}"


def read_domains(text: str) -> list[str]:
    """The domains that a text names, with commas between them, in its order; clean images are
    `original`, or clean."""
    known = (*EVERY, CLEAN)
    names = [CLEAN if name.strip() == "clean" else name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise ValueError(
                f"There is no domain {name!r}.{nearest(name, known)} Domains: {listed(known, 99)}; "
                "with commas between them."
            )
    return names


# Names that fit into tables: of domains, as the paper's tables have them, and of runs.

SHORT = {
    "gaussian_noise": "gauss",
    "shot_noise": "shot",
    "impulse_noise": "impulse",
    "defocus_blur": "defocus",
    "glass_blur": "glass",
    "motion_blur": "motion",
    "zoom_blur": "zoom",
    "brightness": "bright",
    "elastic_transform": "elastic",
    "jpeg_compression": "jpeg",
    "speckle_noise": "speckle",
    "gaussian_blur": "blur",
}


def short(domain: str) -> str:
    """`gauss` for gaussian_noise, also with a severity, as in gauss@3; any other name as it is."""
    name, at, severity = domain.partition("@")
    return SHORT.get(name, name) + at + severity


def distinct(named: Sequence[tuple[str, str]]) -> list[str]:
    """The titles; where two are the same, as methods of two files may be, the texts that they stand
    for."""
    texts: dict[str, set[str]] = {}
    for title, text in named:
        texts.setdefault(title, set()).add(text)
    return [title if len(texts[title]) == 1 else text for title, text in named]


def apart(runs: Sequence[Run]) -> list[str]:
    """Names that tell runs apart, seeds aside: the method, and the options that differ."""
    given = [run.flat for run in runs]
    vary = [
        flag for flag in OPTIONS if flag != "seed" and len({options[flag] for options in given}) > 1
    ]
    titles = distinct([(run.title, run.method) for run in runs])
    return [
        ", ".join([title, *(f"{flag} {options[flag]}" for flag in vary)])
        for title, options in zip(titles, given, strict=True)
    ]


def labels(runs: Sequence[Run]) -> list[str]:
    """The same with their seeds."""
    return [f"{name} seed {run.seed}" for name, run in zip(apart(runs), runs, strict=True)]
