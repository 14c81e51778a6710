"""Runs side by side: the same run with several seeds is one group, and groups on the same images
make a comparison."""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.bench.options import ASIDE, IMAGES
from holdfast.bench.options import FACTS as FACTS
from holdfast.bench.sweep import CHOSEN
from holdfast.results.acting import IDLE, hardly_acts, steps_taken
from holdfast.results.stored import StoredRun

_REPEATED = re.compile(r"\b(?:batch|order_seed)=\d+,?")
# One batch in twenty that takes this many times the median tells of other programs at work.
STEADY = 1.5
_OPEN = re.compile(r",?\(\)|,(?=\))")


@dataclass(frozen=True)
class Group:
    """One method on one set-up, over its seeds and random orders of domains."""

    label: str
    """Unlike that of any other group of its comparison."""
    runs: tuple[StoredRun, ...]

    @property
    def first(self) -> StoredRun:
        return self.runs[0]

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """Host and plug-ins as they are written in the title."""
        return split(self.first.title)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The same without their settings."""
        return tuple(part.partition("(")[0].strip() for part in self.parts)

    @property
    def finished(self) -> bool:
        return all(one.finished for one in self.runs)

    @property
    def chosen(self) -> bool:
        """Whether a setting of it was chosen with the stream's labels."""
        return any(CHOSEN in one.tags for one in self.runs)

    @cached_property
    def idle(self) -> str:
        """`1 step of 128`, of the runs in which the method hardly acted; empty where it did."""
        runs = [one.figures for one in self.runs if hardly_acts(one.figures)]
        return steps_taken(runs) if runs else ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a legend says of it."""
        return (CHOSEN,) * self.chosen + (IDLE,) * bool(self.idle)

    @cached_property
    def domains(self) -> list[str]:
        """In the order in which they came."""
        return list(dict.fromkeys(name for one in self.runs for name in one.domains))

    @cached_property
    def repeats(self) -> tuple[str, ...]:
        """What its runs differ in: seeds, orders, both, or neither where there is one run."""
        seeds = len({one.seed for one in self.runs})
        orders = len({one.stream for one in self.runs})
        return ("seeds",) * (seeds > 1) + ("orders",) * (orders > 1)

    def which(self, stored: StoredRun) -> str:
        """What tells one of its runs from the others: `seed 1`, `order 0`, `seed 1, order 0`."""
        number = {"seeds": f"seed {stored.seed}", "orders": f"order {stored.order}"}
        return ", ".join(number[name] for name in self.repeats or ("seeds",))

    def values(self, figure: str) -> list[float]:
        """A figure of each seed's run, where it is known; names as in `Recorder.summary`."""
        found = (one.figure(figure) for one in self.runs)
        return [value for value in found if not math.isnan(value)]

    def mean(self, figure: str) -> float:
        values = self.values(figure)
        return statistics.fmean(values) if values else math.nan

    def std(self, figure: str) -> float:
        """Over seeds, as of a sample; NaN with one seed."""
        values = self.values(figure)
        return statistics.stdev(values) if len(values) > 1 else math.nan

    @property
    def unevenness(self) -> float:
        """By which share of the median one batch in twenty takes longer, in the worst run."""
        figures = ((one.figure("time_p95"), one.figure("time_median")) for one in self.runs)
        known = [slow / median - 1 for slow, median in figures if median > 0 and slow > 0]
        return max(known, default=0.0)

    @property
    def steady(self) -> bool:
        """Whether its batches took about as long as each other, so that their time says much."""
        return self.unevenness <= STEADY - 1

    @cached_property
    def conditions(self) -> dict[str, Any]:
        """All that may set it apart from other groups of its comparison, but the method."""
        own = {name: value for name, value in self.first.run.items() if name not in ASIDE}
        return {
            **{name: value for name, value in own.items() if name not in IMAGES},
            "batch": self.first.batch_size,
            "version": _dig(self.first.manifest, "versions", "holdfast"),
            "source data": self.first.hashes.get("source"),
            "code": str(self.first.hashes.get("code", "unknown"))[:8],
            **{name: str(one)[:8] for name, one in self.first.own_code.items()},
        }


@dataclass(frozen=True)
class Comparison:
    """Entries that were shown the same images."""

    title: str
    groups: tuple[Group, ...]

    @cached_property
    def domains(self) -> list[str]:
        return list(dict.fromkeys(name for one in self.groups for name in one.domains))

    @property
    def remarks(self) -> dict[str, tuple[str, ...]]:
        """What a legend says of its groups, by label."""
        return {one.label: one.remarks for one in self.groups if one.remarks}

    @property
    def runs(self) -> list[StoredRun]:
        return [stored for one in self.groups for stored in one.runs]

    @property
    def caveat(self) -> str:
        """What a reader should know where runs were made by different code; else nothing."""
        codes = {str(one.hashes.get("code", "unknown")) for one in self.runs}
        if len(codes) < 2:
            return ""
        unknown = ", one of them unknown," if "unknown" in codes else ""
        return (
            f"Runs that {len(codes)} versions of the code made{unknown} are compared here, so a "
            "difference may be the code's: repeat their commands to have all made by one."
        )

    @cached_property
    def disturbed(self) -> bool:
        """Whether some runs went on at the same time, as far as their manifests tell, or were
        resumed, which looks the same: then their times say less."""
        spans = []
        for one in self.runs:
            begun, ended = (one.manifest.get(f"time_{what}") for what in ("started", "finished"))
            if isinstance(begun, str) and isinstance(ended, str):
                spans.append((begun, ended))
        spans.sort()
        return any(after[0] < before[1] for before, after in itertools.pairwise(spans))

    def host_of(self, group: Group) -> Group | None:
        """The group that this one adds its last plug-in to: with the same settings if it is
        there, else the only one of that name."""
        if len(group.parts) < 2:
            return None
        others = [one for one in self.groups if one.names == group.names[:-1]]
        alike = [one for one in others if _alike(one, group)] or others
        wanted = [canonical(part) for part in group.parts[:-1]]
        same = [one for one in alike if [canonical(part) for part in one.parts] == wanted]
        found = same or alike
        return found[0] if len(found) == 1 else None

    def baseline(self, name: str, group: Group) -> Group | None:
        """The group of that method: under the same conditions if it is there, else the only one."""
        others = [one for one in self.groups if one.names == (name,)]
        found = [one for one in others if _alike(one, group)] or others
        return found[0] if len(found) == 1 else None


def compare(runs: Iterable[StoredRun]) -> list[Comparison]:
    """Comparisons, the largest first."""
    found: dict[str, list[StoredRun]] = {}
    for stored in runs:
        found.setdefault(_images_key(stored), []).append(stored)
    made = [_comparison(each) for each in found.values()]
    made = [replace(one, title=title) for one, title in zip(made, _titles(made), strict=True)]
    return sorted(made, key=lambda one: -len(one.runs))


def over(groups: Iterable[Group]) -> str:
    """What their means are over, in words: seeds, orders, seeds and orders."""
    found = {name for one in groups for name in one.repeats}
    return " and ".join(sorted(found, reverse=True)) or "seeds"


def brief(data: str) -> str:
    """A data set's name; of a path, the end."""
    return Path(data).name or data


def split(method: str) -> tuple[str, ...]:
    """The parts of a spec string, cut at each + outside brackets."""
    parts, depth = [""], 0
    for sign in method:
        depth += (sign == "(") - (sign == ")")
        if sign == "+" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return tuple(parts)


def canonical(part: str) -> str:
    """A part with its settings in alphabetical order, since a sweep may write them in another."""
    name, bracket, settings = part.replace(" ", "").partition("(")
    return f"{name}{bracket}{','.join(sorted(settings.removesuffix(')').split(',')))}"


def _comparison(runs: Sequence[StoredRun]) -> Comparison:
    found: dict[str, list[StoredRun]] = {}
    for stored in runs:
        found.setdefault(_method_key(stored), []).append(stored)
    groups = [Group(each[0].title, _seeds(each)) for each in found.values()]
    return Comparison("", tuple(_labelled(groups)))


def _seeds(runs: Sequence[StoredRun]) -> tuple[StoredRun, ...]:
    """One run a seed and order: the one that is finished, and has an analysis."""
    best: dict[tuple[int, str], StoredRun] = {}
    for one in runs:
        key = (one.seed, one.stream)
        other = best.get(key)
        if other is None or _worth(one) > _worth(other):
            best[key] = one
    return tuple(best[key] for key in sorted(best))


def _worth(one: StoredRun) -> tuple[bool, bool, int]:
    return one.finished, one.analysis is not None, one.done


def _images_key(stored: StoredRun) -> str:
    hashes = {name: stored.hashes.get(name) for name in ("data", "model")}
    given = {name: stored.run.get(name) for name in IMAGES}
    return _key({**given, "stream": _drift(stored.stream), "hashes": hashes})


def _method_key(stored: StoredRun) -> str:
    # The method with all its settings says what a preset does.
    own = {name: value for name, value in stored.run.items() if name not in ASIDE | {"preset"}}
    return _key(
        {
            **own,
            "method": stored.manifest.get("method", stored.title),
            "batch": stored.batch_size,
            "source": stored.hashes.get("source"),
            "version": _dig(stored.manifest, "versions", "holdfast"),
            "code": stored.hashes.get("code"),
            **stored.own_code,
        }
    )


def _drift(stream: str) -> str:
    """A stream without what repeats it or cuts it otherwise."""
    return _OPEN.sub("", _REPEATED.sub("", stream))


def _labelled(groups: Sequence[Group]) -> list[Group]:
    """Each with its title, and where that is not its own with what sets it apart."""
    found = []
    for group in groups:
        rivals = [one for one in groups if one.label == group.label]
        label = group.label
        if len(rivals) > 1:
            apart = [
                f"{name} {value}"
                for name, value in group.conditions.items()
                if any(one.conditions.get(name) != value for one in rivals)
            ]
            label = " · ".join([label, *(text[:40] for text in apart)])
        found.append(replace(group, label=label))
    labels = [one.label for one in found]
    return [
        # As with presets: settings differ, and nothing that is short tells them apart.
        replace(one, label=f"{one.label} · {_print(one)}") if labels.count(one.label) > 1 else one
        for one in found
    ]


def _print(group: Group) -> str:
    return str(group.first.manifest.get("fingerprint") or group.first.path.name)[:10]


def _titles(made: Sequence[Comparison]) -> list[str]:
    """The data and the stream, and of what else differs between comparisons as much as it takes."""

    def facts(one: Comparison) -> dict[str, str]:
        first = one.groups[0].first
        extra = {name: first.run.get(name) for name in IMAGES if name != "data"}
        return {
            "data": brief(str(first.run.get("data", "unknown data"))),
            "stream": _drift(first.stream),
            **{name: f"{name} {value}" for name, value in extra.items() if value is not None},
            "weights": f"weights {str(first.hashes.get('model'))[:8]}",
            "set": f"set {str(first.hashes.get('data'))[:8]}",
        }

    known = [facts(one) for one in made]
    names = ["data", "stream"]
    for name in dict.fromkeys(name for each in known for name in each):
        texts = [", ".join(each[key] for key in names if key in each) for each in known]
        if len(set(texts)) == len(texts):
            break
        if name not in names and len({each.get(name) for each in known}) > 1:
            names.append(name)
    return [", ".join(each[key] for key in names if key in each) for each in known]


def _alike(one: Group, other: Group) -> bool:
    """Under the same conditions; whether a source was asked for is the method's own matter."""
    # An own method that the other adds is its own matter too, and `one` has not got it.
    keys = set(one.conditions) - {"source data", "version"}
    return all(one.conditions[key] == other.conditions.get(key) for key in keys)


def _dig(what: Mapping[str, Any], *names: str) -> Any:
    found: Any = what
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _key(what: Mapping[str, Any]) -> str:
    return json.dumps(what, sort_keys=True, default=str)
