"""Groups that were shown the same images make a comparison."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from holdfast.bench.compared import DECIDES_IMAGES
from holdfast.bench.plan import distinct
from holdfast.bench.sweep import CHOSEN
from holdfast.results.group import Group
from holdfast.results.stored import IDLE, StoredRun


@dataclass(frozen=True)
class Comparison:
    """Groups that were shown the same images."""

    title: str
    groups: tuple[Group, ...]

    @cached_property
    def domains(self) -> list[str]:
        return list(dict.fromkeys(name for group in self.groups for name in group.domains))

    @property
    def remarks(self) -> dict[str, tuple[str, ...]]:
        """What a legend says of its groups, by label."""
        by_label = {
            group.label: (CHOSEN,) * group.chosen + (IDLE,) * bool(group.idle)
            for group in self.groups
        }
        return {label: remarks for label, remarks in by_label.items() if remarks}

    @property
    def runs(self) -> list[StoredRun]:
        return [run for group in self.groups for run in group.runs]

    @property
    def caveat(self) -> str:
        """What a reader should know where runs were made by different code; else nothing."""
        codes = {run.manifest.code for run in self.runs}
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
        manifests = [run.manifest for run in self.runs]
        spans = sorted((manifest.time_started, manifest.time_finished) for manifest in manifests)
        known = [span for span in spans if all(span)]
        return any(after[0] < before[1] for before, after in itertools.pairwise(known))

    def host_of(self, group: Group) -> Group | None:
        """The group that this one adds its last plug-in to: with the same settings if it is
        there, else the only one of that name."""
        hosts = [rival for rival in self.groups if rival.names == group.names[:-1]]
        alike = [host for host in hosts if _alike(host, group)] or hosts
        same = [host for host in alike if host.written == group.written[:-1]]
        return _only(same or alike)

    def baseline(self, name: str, group: Group) -> Group | None:
        """The group of that method: under the same conditions if it is there, else the only one."""
        groups = [rival for rival in self.groups if rival.names == (name,)]
        return _only([rival for rival in groups if _alike(rival, group)] or groups)


def compare(runs: Iterable[StoredRun]) -> list[Comparison]:
    """Comparisons, the largest first."""
    made = [Comparison("", tuple(_groups(same))) for same in _same(_images, runs)]
    made = [
        replace(comparison, title=title)
        for comparison, title in zip(made, _titles(made), strict=True)
    ]
    return sorted(made, key=lambda comparison: -len(comparison.runs))


def _only(groups: Sequence[Group]) -> Group | None:
    return groups[0] if len(groups) == 1 else None


def _groups(runs: Iterable[StoredRun]) -> list[Group]:
    def method(run: StoredRun) -> dict[str, Any]:
        # With all its settings, which say what a preset does.
        return {**run.conditions, "preset": None, "method": run.manifest.method or run.title}

    runs_of = [_one_a_seed(same) for same in _same(method, runs)]
    written = [(same[0].title, str(same[0].manifest.run.get("method"))) for same in runs_of]
    return _labelled([Group(*pair) for pair in zip(distinct(written), runs_of, strict=True)])


def _one_a_seed(runs: Iterable[StoredRun]) -> tuple[StoredRun, ...]:
    """One run a seed and order: the one that is finished, and has an analysis."""
    best: dict[tuple[int, str], StoredRun] = {}
    for run in sorted(
        runs, key=lambda run: (run.finished, run.analysis is not None, run.done), reverse=True
    ):
        best.setdefault((run.seed, run.manifest.stream), run)
    return tuple(best[key] for key in sorted(best))


def _same(
    facts: Callable[[StoredRun], Mapping[str, Any]], runs: Iterable[StoredRun]
) -> Iterable[list[StoredRun]]:
    """Runs grouped by these facts."""
    same: dict[str, list[StoredRun]] = {}
    for run in runs:
        same.setdefault(json.dumps(facts(run), sort_keys=True, default=str), []).append(run)
    return same.values()


def _images(run: StoredRun) -> dict[str, Any]:
    hashes = {name: run.manifest.hashes.get(name) for name in ("data", "model")}
    options = {name: run.option(name) for name in DECIDES_IMAGES}
    return {**options, "stream": run.drift, "hashes": hashes}


def _alike(host: Group, group: Group) -> bool:
    """Under the same conditions; whether a source was asked for is the method's own matter."""
    # A method of one's own that the group adds is its own matter too: the host has none.
    ours, theirs = host.first.conditions, group.first.conditions
    return all(ours[key] == theirs.get(key) for key in ours.keys() - {"source data", "version"})


# Names.


def _labelled(groups: Sequence[Group]) -> list[Group]:
    """Groups with labels of their own: the title, and where two share it what sets them apart."""
    labels = []
    for group in groups:
        rivals = [rival for rival in groups if rival.label == group.label]
        apart = [
            f"{name} {value}"[:40]
            for name, value in group.first.conditions.items()
            if any(rival.first.conditions.get(name) != value for rival in rivals)
        ]
        labels.append(" · ".join([group.label, *apart]))
    made = []
    for group, label in zip(groups, labels, strict=True):
        # As with presets: settings differ, and nothing that is short tells them apart.
        mark = (group.first.manifest.fingerprint or group.first.path.name)[:10]
        unique = f"{label} · {mark}" if labels.count(label) > 1 else label
        made.append(replace(group, label=unique))
    return made


def _titles(made: Sequence[Comparison]) -> list[str]:
    """The data and the stream, and of what else differs between comparisons as much as it takes."""

    def facts(comparison: Comparison) -> dict[str, str]:
        first = comparison.groups[0].first
        options = {name: first.option(name) for name in DECIDES_IMAGES if name != "data"}
        return {
            "data": short_data(str(first.option("data") or "unknown data")),
            "stream": first.drift,
            **{name: f"{name} {value}" for name, value in options.items() if value is not None},
            "weights": f"weights {str(first.manifest.hashes.get('model'))[:8]}",
            "set": f"set {str(first.manifest.hashes.get('data'))[:8]}",
        }

    known = [facts(comparison) for comparison in made]
    names = ["data", "stream"]
    for name in dict.fromkeys(name for about in known for name in about):
        texts = [", ".join(about[key] for key in names if key in about) for about in known]
        if len(set(texts)) == len(texts):
            break
        if name not in names and len({about.get(name) for about in known}) > 1:
            names.append(name)
    return [", ".join(about[key] for key in names if key in about) for about in known]


def short_data(data: str) -> str:
    """A data set's name; of a path, the end."""
    return Path(data).name or data
