"""Names that fit into tables: of domains, as the headings of the paper's tables have them, and of
runs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.bench.options import OPTIONS
from holdfast.bench.plan import Run

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
}


def short(domain: str) -> str:
    """`gauss` for gaussian_noise, also with a severity, as in gauss@3; any other name as it is."""
    name, at, severity = domain.partition("@")
    return SHORT.get(name, name) + at + severity


def distinct(named: Sequence[tuple[str, str]]) -> list[str]:
    """Of titles and the texts that they stand for, the titles; the texts where two share one, as
    methods of two files may."""
    texts: dict[str, set[str]] = {}
    for title, text in named:
        texts.setdefault(title, set()).add(text)
    return [title if len(texts[title]) == 1 else text for title, text in named]


def apart(runs: Sequence[Run]) -> list[str]:
    """What runs are called among each other, seeds aside: the method, and what else they differ
    in."""
    given = [run.flat for run in runs]
    vary = [flag for flag in OPTIONS if flag != "seed" and len({one[flag] for one in given}) > 1]
    titles = distinct([(run.title, run.method) for run in runs])
    return [
        ", ".join([title, *(f"{flag} {one[flag]}" for flag in vary)])
        for title, one in zip(titles, given, strict=True)
    ]


def labels(runs: Sequence[Run]) -> list[str]:
    """The same with their seeds."""
    return [f"{name} seed {run.seed}" for name, run in zip(apart(runs), runs, strict=True)]
