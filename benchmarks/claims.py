"""Which of the paper's claims on its plug-in hold in stored runs?

    python benchmarks/claims.py "ResNet-20=runs/cifar100-resnet20" "EfficientNet=runs/imagenet"

Each claim is a difference between a method with `debias` and the method without it, domain by
domain, averaged over seeds. It holds where the mean over domains lies more than two standard
errors on the side that the paper says, it does not where it lies so on the other side; anything
between is not shown.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

import tyro

from holdfast.results.gather import gather
from holdfast.results.stored import StoredRun

HOSTS = ("eata", "tent", "roid", "rmt", "bn")
# A claim, what it is measured by, the factor to show it in, and the side the paper says.
BY_METRIC = (
    ("more accurate, points", "accuracy", 1.0, +1),
    ("predicted classes less biased, points", "bias", 100.0, -1),
    ("fewer predictions above 0.95, points", "share_above_0.95", 100.0, -1),
    ("better calibrated (ECE), points", "ece_15", 100.0, -1),
    ("higher entropy, nats", "entropy", 1.0, +1),
)
# Of `--analysis`, in % of what the host has.
BY_DISTANCE = (
    ("smaller gap to the source, %", "gap", -1),
    ("smaller distance within classes, %", "intra", -1),
    ("smaller within / between classes, %", "ratio", -1),
)
# Of the plug-in's own prototypes along the stream: last third of the domains against the first.
BY_SIMILARITY = (
    ("prototypes come nearer to the source's", "similarity_source"),
    ("prototypes come nearer to the true ones", "similarity_target"),
)


@dataclass(frozen=True)
class Settings:
    """Which of the paper's claims hold in stored runs?"""

    networks: tyro.conf.Positional[tuple[str, ...]]
    """NAME=FOLDER, a column each; FOLDER holds finished runs, below it too."""
    reduction: str = ""
    """Of the plug-in's setting src_reduction, as written in the runs; default: not written."""


@dataclass(frozen=True)
class Shown:
    """A difference over domains, and what it says of a claim."""

    differences: tuple[float, ...]
    side: int

    @property
    def text(self) -> str:
        mean = fmean(self.differences)
        if len(self.differences) < 2:
            return f"{mean:+.2f}: not shown"
        error = stdev(self.differences) / math.sqrt(len(self.differences))
        verdict = "not shown"
        if abs(mean) > 2 * error:
            verdict = "**holds**" if mean * self.side > 0 else "**does not**"
        return f"{mean:+.2f} ± {error:.2f}: {verdict}"


def main(settings: Settings) -> int:
    networks = dict(word.split("=", 1) for word in settings.networks)
    columns = [dict(claims(gather(Path(folder)).runs, settings)) for folder in networks.values()]
    rows = list(dict.fromkeys(row for column in columns for row in column))
    print("| " + " | ".join(("claim", *networks)) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for row in rows:
        print("| " + " | ".join((row, *(column.get(row, "not run") for column in columns))) + " |")
    return 0


def claims(runs: Sequence[StoredRun], settings: Settings) -> Iterator[tuple[str, str]]:
    plugin = f"debias(src_reduction={settings.reduction})" if settings.reduction else "debias"
    for host in HOSTS:
        guest = plugin if host == "bn" else f"{host}+{plugin}"
        beside = "bn, the plug-in alone" if host == "bn" else host
        for claim, metric, scale, side in BY_METRIC:
            before, after = by_domain(runs, host, metric), by_domain(runs, guest, metric)
            if before and before.keys() == after.keys():
                changes = tuple(scale * (after[name] - before[name]) for name in before)
                yield f"{claim}: on {beside}", Shown(changes, side).text
        for claim, distance, side in BY_DISTANCE:
            before, after = of_analysis(runs, host, distance), of_analysis(runs, guest, distance)
            if before and before.keys() == after.keys():
                # With one image of a class there is no distance within it.
                defined = [name for name in before if before[name]]
                changes = tuple(100 * (after[name] / before[name] - 1) for name in defined)
                shown = Shown(changes, side).text if changes else "not shown: one image a class"
                yield f"{claim}: on {beside}", shown
        for claim, similarity in BY_SIMILARITY:
            along = list(of_analysis(runs, guest, similarity).values())
            if len(along) >= 3:
                third = len(along) // 3
                early, late = fmean(along[:third]), fmean(along[-third:])
                verdict = "**holds**" if late > early else "**does not**"
                yield f"{claim}: on {beside}", f"{early:.3f} → {late:.3f}: {verdict}"


def by_domain(runs: Sequence[StoredRun], title: str, metric: str) -> dict[str, float]:
    """Means over seeds, in the order of the domains."""
    return means([run.by_domain(metric) for run in runs if run.title == title and run.finished])


def of_analysis(runs: Sequence[StoredRun], title: str, column: str) -> dict[str, float]:
    frames = [run.analysis for run in runs if run.title == title and run.finished]
    return means(
        [
            dict(zip(frame["domain"], frame[column], strict=True))
            for frame in frames
            if frame is not None
        ]
    )


def means(tables: Sequence[dict[str, float | None]]) -> dict[str, float]:
    names = tables[0] if tables else {}
    values = {name: [table.get(name) for table in tables] for name in names}
    return {name: fmean(all_of) for name, all_of in values.items() if None not in all_of}


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Settings)))
