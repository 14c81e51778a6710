"""How it was run: what a reader needs to believe the numbers, or to repeat them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from holdfast.results import FACTS
from holdfast.results.comparison import Comparison
from holdfast.results.group import Group, repeated_over
from holdfast.results.stored import StoredRun
from holdfast.util.words import listed


def summary(comparison: Comparison) -> str:
    """`glyphs-c, continual · 3 methods · 16 domains · 1,600 images · 2 seeds`."""
    groups, domains = len(comparison.groups), len(comparison.domains)
    runs = sorted({len(group.runs) for group in comparison.groups})
    repeats = repeated_over(comparison.groups) if runs[-1] > 1 else "seed"
    images = comparison.runs[0].manifest.images
    texts = [
        comparison.title,
        f"{groups} method{'s' if groups > 1 else ''}",
        f"{domains} domain{'s' if domains != 1 else ''}",
        f"{images:,} images" if images else "",
        f"{'–'.join(map(str, dict.fromkeys((runs[0], runs[-1]))))} {repeats}",
    ]
    return " · ".join(filter(None, texts))


def provenance(comparison: Comparison) -> dict[str, object]:
    commands = (run.manifest.command for run in comparison.runs)
    return {
        "caveat": comparison.caveat,
        "facts": facts(comparison.runs),
        "commands": list(dict.fromkeys(filter(None, commands))),
        "runs": [_listed(group, run) for group in comparison.groups for run in group.runs],
        "settings": {group.label: _settings(group) for group in comparison.groups},
    }


def facts(runs: Sequence[StoredRun]) -> dict[str, str]:
    """In words, with all values where runs differ."""
    values: dict[str, Iterable[object]] = {
        **{title: [run.option(flag) for run in runs] for title, flag in FACTS.items()},
        "stream": [run.manifest.stream for run in runs],
        "confidence, entropy and calibration": [
            f"{run.title}: of the logits before its correction"
            for run in runs
            if run.manifest.uncorrected
        ],
        "images a batch": [run.batch_size for run in runs],
        "images": [run.manifest.images or None for run in runs],
        "classes": [run.manifest.classes for run in runs],
        "seeds": sorted({run.seed for run in runs}),
        "random orders": sorted({run.order for run in runs if run.order is not None}),
        **{
            f"hash of the {'weights' if name == 'model' else name}": [
                run.manifest.hashes.get(name) for run in runs
            ]
            for name in ("data", "model", "source", "code")
        },
        "hashes of own files": [
            f"{name} {value}" for run in runs for name, value in run.manifest.own_code.items()
        ],
        **{
            name: [_plain(getattr(run.manifest, name)) for run in runs]
            for name in ("normalisation", "versions", "machine")
        },
    }
    texts = {
        name: listed(dict.fromkeys(str(value) for value in known if value not in (None, "")), 6)
        for name, known in values.items()
    }
    return {name: text for name, text in texts.items() if text}


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    # As many digits as a number of single precision has.
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def _listed(group: Group, run: StoredRun) -> dict[str, object]:
    """A line in the list of all runs."""
    planned = f" of {run.manifest.batches:,}" if run.manifest.batches else ""
    return {
        "method": group.label,
        "seed": run.seed,
        "order": "–" if run.order is None else run.order,
        "state": "finished" if run.finished else f"{run.done:,}{planned} batches",
        "started": run.manifest.time_started or "–",
        "finished": run.manifest.time_finished or "–",
        "fingerprint": run.manifest.fingerprint[:16] or "–",
        "folder": run.path,
    }


def _settings(group: Group) -> dict[str, str]:
    """Every setting with its value and where it comes from."""
    texts = {}
    for part, settings in group.first.manifest.settings.items():
        for name, setting in settings.items():
            value = setting.value if isinstance(setting.value, str) else json.dumps(setting.value)
            texts[f"{part}: {name}"] = value + (f", {setting.origin}" if setting.origin else "")
    return texts
