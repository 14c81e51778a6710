"""How it was run: what a reader needs to believe the numbers, or to repeat them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.report.markup import escape, named, pairs, scrolled
from holdfast.results.compare import FACTS, Comparison, Group
from holdfast.results.gather import Note
from holdfast.results.stored import StoredRun
from holdfast.util.words import listed


def how(comparison: Comparison, places: Mapping[str, int], prefix: str) -> str:
    runs = comparison.runs
    return (
        f'<section class="how" aria-labelledby="{prefix}how-h"><h3 id="{prefix}how-h">How it was '
        "run</h3>"
        + (f'<p class="key">{escape(comparison.caveat)}</p>' if comparison.caveat else "")
        + pairs("What the runs were made with", _facts(runs))
        + _commands(runs)
        + f'<details id="{prefix}runs"><summary>Every run, {len(runs)} of them</summary>'
        + _runs(comparison, places)
        + "</details>"
        + "".join(
            _settings(one, f"{prefix}settings-{k}") for k, one in enumerate(comparison.groups)
        )
        + "</section>"
    )


def _facts(runs: Iterable[StoredRun]) -> dict[str, str]:
    """Each in words, with all values where runs differ."""
    known = list(runs)

    def all_of(values: Iterable[object]) -> str:
        return listed(dict.fromkeys(str(value) for value in values if value not in (None, "")), 6)

    found = {title: all_of(one.run.get(flag) for one in known) for title, flag in FACTS.items()}
    found |= {
        "stream": all_of(one.stream for one in known),
        "images a batch": all_of(one.batch_size for one in known),
        "images": all_of(one.manifest.get("images") for one in known),
        "classes": all_of(one.manifest.get("classes") for one in known),
        "seeds": all_of(sorted({one.seed for one in known})),
        "random orders": all_of(sorted({one.order for one in known if one.order is not None})),
        "hash of the data": all_of(one.hashes.get("data") for one in known),
        "hash of the weights": all_of(one.hashes.get("model") for one in known),
        "hash of the source": all_of(one.hashes.get("source") for one in known),
        "hash of the code": all_of(one.hashes.get("code") for one in known),
        "hashes of own files": all_of(
            f"{name} {value}" for one in known for name, value in one.own_code.items()
        ),
        "normalisation": all_of(_plain(one.manifest.get("normalisation")) for one in known),
        "versions": all_of(_plain(one.manifest.get("versions")) for one in known),
        "machine": all_of(_plain(one.manifest.get("machine")) for one in known),
    }
    return {name: text for name, text in found.items() if text}


def _plain(what: object) -> str:
    if isinstance(what, Mapping):
        return ", ".join(f"{name} {_plain(value)}" for name, value in what.items())
    if isinstance(what, list):
        return ", ".join(map(_plain, what))
    # As many digits as a number of single precision has.
    return f"{what:.6g}" if isinstance(what, float) else "" if what is None else str(what)


def _commands(runs: Iterable[StoredRun]) -> str:
    found = dict.fromkeys(
        command
        for one in runs
        if isinstance(command := one.manifest.get("command"), str) and command
    )
    if not found:
        return ""
    lines = "\n".join(escape(command) for command in found)
    return f"<h4>To repeat it</h4><pre><code>{lines}</code></pre>"


def _runs(comparison: Comparison, places: Mapping[str, int]) -> str:
    heads = "".join(
        f'<th scope="col">{name}</th>'
        for name in (
            "method",
            "seed",
            "order",
            "state",
            "started",
            "finished",
            "fingerprint",
            "folder",
        )
    )
    rows = []
    for group in comparison.groups:
        for one in group.runs:
            cells = (
                one.seed,
                "–" if one.order is None else one.order,
                _state(one),
                one.manifest.get("time_started", "–"),
                one.manifest.get("time_finished", "–"),
                str(one.manifest.get("fingerprint", "–"))[:16],
            )
            texts = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
            texts += f'<td class="path">{escape(one.path)}</td>'
            rows.append(
                f'<tr data-method="{places[group.label]}"><th scope="row">{named(group.label)}'
                f"</th>{texts}</tr>"
            )
    return scrolled(
        f"<table><caption><span>Every run</span></caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>",
        "Every run",
    )


def _state(one: StoredRun) -> str:
    if one.finished:
        return "finished"
    return f"{one.done:,} of {one.planned:,} batches" if one.planned else f"{one.done:,} batches"


def _settings(group: Group, id: str) -> str:
    """Every setting with its value and where it comes from."""
    parts = group.first.manifest.get("settings")
    found: dict[str, str] = {}
    for part, settings in parts.items() if isinstance(parts, Mapping) else ():
        for name, one in settings.items() if isinstance(settings, Mapping) else ():
            found[f"{part}: {name}"] = _setting(one)
    if not found:
        return ""
    return (
        f'<details id="{id}"><summary>Settings of {escape(group.label)}</summary>'
        + pairs(f"Settings of {group.label}", found)
        + "</details>"
    )


def _setting(one: Any) -> str:
    if not isinstance(one, Mapping):
        return str(one)
    value = one.get("value")
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return f"{text}, {origin}" if (origin := one.get("from")) else text


def notes(found: Iterable[Note]) -> str:
    """What could not be read, and what was passed over."""
    items = "".join(
        f"<li><code>{escape(one.path)}</code>: {escape(one.text)}</li>" for one in found
    )
    if not items:
        return ""
    return (
        '<section aria-labelledby="notes"><h2 id="notes">What could not be read</h2>'
        f'<ul class="alarms">{items}</ul></section>'
    )
