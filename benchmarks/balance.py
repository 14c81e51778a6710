"""What does debias(balance=auto) do beside fixed weights? Hosts and streams of
docs/results/auto.md, by `holdfast run`; ends with its table, and counts where it is below its host.

    python benchmarks/balance.py --out runs/auto --seeds 3 --row tent eata sar alone roid \
        -- --data cifar100.npz --source train.npz --model resnet20:weights.safetensors --threads 1

What follows -- is given to every run. Finished runs are not run again, so that it can be stopped
and started anew with other rows, or only asked for its table (--no-run).
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev

import tyro

import holdfast
from holdfast.results.gather import gather
from holdfast.results.stored import StoredRun

# How debias is set, by the name of its column. On rmt its own weights are of the plain sum.
WAYS = {"mean": "src_reduction=mean", "scaled": "", "auto": "balance=auto"}
# Below its host by more than this many points counts as harm.
HARM = 0.2
ALONE = "alone"


@dataclass(frozen=True)
class Row:
    """A host on a stream. rate: times its learning rate. options: of `holdfast run`, in place of
    those of all rows."""

    host: str
    rate: float = 1.0
    options: Mapping[str, str] = field(default_factory=dict)

    def methods(self) -> dict[str, str]:
        """By column, how it is written; the first is the host's. Alone, it is bn."""
        specs = {"host": "bn" if self.host == ALONE else self._written(self.host)}
        for name, settings in WAYS.items():
            if self.host == ALONE:
                specs[name] = self._written("debias", settings)
            else:
                specs[name] = f"{specs['host']}+debias" + (f"({settings})" if settings else "")
        return specs

    def _written(self, method: str, settings: str = "") -> str:
        rate = ""
        if self.rate != 1:
            usual = getattr(holdfast.compose(method).host, "lr")  # noqa: B009 (a Learner's)
            rate = f"lr={usual * self.rate:g}"
        given = ",".join(filter(None, (rate, settings)))
        return f"{method}({given})" if given else method


def _rows() -> Iterator[tuple[str, Row]]:
    for host in ("tent", "eata", "sar", ALONE, "roid"):
        yield host, Row(host)
    for host in ("rmt", "cotta"):
        yield host, Row(host, options={"--limit": "200", "--seeds": "1"})
    for host in ("tent", "eata", ALONE):
        for text, rate in (("1/4", 0.25), ("4", 4.0), ("16", 16.0)):
            yield f"{host}, rate × {text}", Row(host, rate)
        yield f"{host}, batches of 16", Row(host, options={"--batch": "16"})
        # Labels as even as by chance.
        three = "recurring(visits=3,order=paper,gamma=1000000)"
        yield f"{host}, three times over", Row(host, options={"--stream": three})
        yield f"{host}, correlated", Row(host, options={"--stream": "correlated"})


ROWS = dict(_rows())


@dataclass(frozen=True)
class Settings:
    """Debias by fixed weights and by balance=auto, beside the host."""

    out: Path
    options: tyro.conf.Positional[tuple[str, ...]] = ()
    """Of every run, behind --."""
    row: tuple[str, ...] = tuple(ROWS)
    limit: int = 500
    """Images of each domain, where a row has no number of its own."""
    seeds: int = 1
    run: bool = True
    """Whether to run what is missing, or only to show what there is."""


def main(settings: Settings) -> int:
    unknown = [name for name in settings.row if name not in ROWS]
    if unknown:
        print(f"There is no row {unknown[0]!r}. Rows: {'; '.join(ROWS)}.", file=sys.stderr)
        return 2
    measured: dict[str, dict[str, dict[int, StoredRun]]] = {}
    for name in settings.row:
        row, folder = ROWS[name], settings.out / re.sub(r"\W+", "-", name)
        if settings.run:
            run(row, folder, settings)
        stored = by_column(folder, row)
        if all(column in stored for column in row.methods()):
            measured[name] = stored
    print(table(measured))
    print(harm(measured))
    return 0


def run(row: Row, out: Path, settings: Settings) -> None:
    named = [word for method in row.methods().values() for word in ("-m", method)]
    shared = {"--limit": str(settings.limit), "--seeds": str(settings.seeds)}
    options = [word for pair in {**shared, **row.options}.items() for word in pair]
    command = [sys.executable, "-m", "holdfast", "run", *named, *settings.options, *options]
    command += ["--no-health", "--resume", "--out", str(out)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def by_column(folder: Path, row: Row) -> dict[str, dict[int, StoredRun]]:
    """Finished runs by seed."""
    runs: dict[str, dict[int, StoredRun]] = {}
    columns = {str(holdfast.compose(spec)): name for name, spec in row.methods().items()}
    for stored in gather(folder).runs if folder.is_dir() else ():
        name = columns.get(str(holdfast.compose(stored.run.method)))
        if stored.finished and name is not None:
            runs.setdefault(name, {})[stored.seed] = stored
    return runs


def table(rows: Mapping[str, Mapping[str, Mapping[int, StoredRun]]]) -> str:
    """Accuracy / ECE / bias of the host, differences to it, and auto − mean, paired by domain."""
    titles = ["host", *WAYS, "auto − mean ± s.e."]
    lines = [f"| row | seeds | {' | '.join(titles)} |", "|---" * (len(titles) + 2) + "|"]
    for name, columns in rows.items():
        host = columns["host"]
        seeds = min(len(runs) for runs in columns.values())
        cells = ["/".join(f"{value:.2f}" for value in metrics(host))]
        for way in WAYS:
            pairs = zip(metrics(columns[way]), metrics(host), strict=True)
            cells.append("/".join(f"{ours - theirs:+.2f}" for ours, theirs in pairs))
        apart = differences(columns["auto"], columns["mean"])
        error = stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else float("nan")
        cells.append(f"{fmean(apart):+.2f} ± {error:.2f}")
        lines.append(f"| {name} | {seeds} | {' | '.join(cells)} |")
    return "\n".join(lines)


def metrics(runs: Mapping[int, StoredRun]) -> tuple[float, float, float]:
    """Accuracy, ECE and bias in %, over seeds; accuracy as a mean over domains."""
    accuracy = fmean(fmean(stored.by_domain("accuracy").values()) for stored in runs.values())
    ece, bias = (
        fmean(stored.metric(name) for stored in runs.values()) for name in ("ece_15", "bias")
    )
    return accuracy, 100 * ece, 100 * bias


def differences(first: Mapping[int, StoredRun], second: Mapping[int, StoredRun]) -> list[float]:
    """Of accuracy, by seed and domain."""
    return [
        value - second[seed].by_domain("accuracy")[domain]
        for seed, run in first.items()
        if seed in second
        for domain, value in run.by_domain("accuracy").items()
    ]


def harm(rows: Mapping[str, Mapping[str, Mapping[int, StoredRun]]]) -> str:
    """How often each way is below its host, over rows and over single runs."""
    lines = []
    for way in WAYS:
        below = {
            name: apart
            for name, columns in rows.items()
            if (apart := fmean(differences(columns[way], columns["host"]))) < -HARM
        }
        by_seed = [
            fmean(differences({seed: stored}, columns["host"]))
            for columns in rows.values()
            for seed, stored in columns[way].items()
            if seed in columns["host"]
        ]
        runs = sum(apart < -HARM for apart in by_seed)
        named = "".join(f"; {name} {apart:+.2f}" for name, apart in below.items())
        lines.append(
            f"{way} is more than {HARM} below its host in {len(below)} of {len(rows)} rows, "
            f"{runs} of {len(by_seed)} runs{named}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Settings)))
