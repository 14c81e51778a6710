"""`holdfast run`: methods on a stream, side by side."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from holdfast.engine.options import Precision
from holdfast.util.terminal import show

if TYPE_CHECKING:
    from holdfast.bench.many import Outcome
    from holdfast.bench.plan import Run as Plan
    from holdfast.bench.store import RunFolder

RUNS = Path("runs")
METHODS = ("frozen", "bn", "tent", "eata", "debias", "eata+debias")


@dataclass(frozen=True)
class Setup:
    """What a run is made on; options that `run`, `paper` and `sweep` share. None: not given."""

    data: str | None = None
    """glyphs-c, the embedded benchmark; cifar10-c, cifar100-c, imagenet-c; a folder in one of their
    layouts; a clean set, which is corrupted as it is read (an .npz file, a folder of classes). By
    itself, glyphs-c."""
    model: str | None = None
    """glyphs; NAME:WEIGHTS with a network of ours, such as resnet20:weights.safetensors;
    torchvision:NAME; timm:NAME; package.module:factory. By itself, what comes with the data."""
    mean: str | None = None
    """Of the input normalisation that the model's weights were trained with, as in
    0.485,0.456,0.406. Default: that of the network's public weights."""
    std: str | None = None
    """The same, of the standard deviation."""
    source: str | None = None
    """Training images of the model (a clean set), or a saved Source; where a method needs it. By
    itself, what belongs to the data."""
    root: str | None = None
    """Where sets lie; by itself, $HOLDFAST_DATA, else the folder data."""
    limit: int | None = None
    """Most images of each domain, evenly picked; default: all. In gradual, at each severity; in
    recurring, at each visit; in noisy, and as many intruders; in endless, times the number of
    corruptions, for the whole stream."""
    batch: Annotated[int | None, tyro.conf.arg(aliases=["--batch-size"])] = None
    """Images in a batch; by itself, the stream's 64."""
    severity: int | None = None
    """Of corruptions, 1 to 5; by itself, 5."""
    seed: int | None = None
    """The first seed: of the order of images, and of the method's own randomness; by itself, 0."""
    seeds: int | None = None
    """How many seeds, one after the other from the first; by itself, 1."""
    images: str | None = None
    """A file that names some of a folder's images, one class/file a line."""
    classes: str | None = None
    """A file that names the classes in order, one a line."""
    frost: str | None = None
    """Folder with the original frost textures."""
    head: str | None = None
    """Name of the model's layer that maps features to logits; by itself, the last linear one."""
    device: str | None = None
    """As torch names it; by itself, cuda where there is one, else cpu."""
    threads: int | None = None
    """Of the processor; by itself, one for each core."""
    workers: int | None = None
    """Processes that read images ahead; by itself, 0, none."""
    precision: Precision | None = None
    """Of forward passes, by autocast; by itself, the model's own."""
    out: Path | None = None
    """Folder that holds a folder for each run; by itself, runs."""
    resume: bool = False
    """Go on with what was stopped."""
    again: bool = False
    """Run anew what is finished, which is replaced once that is done."""
    snapshot: float | None = None
    """Seconds between two snapshots: what a kill costs at most; by itself, 60."""

    @property
    def given(self) -> dict[str, Any]:
        """By name, what was given of all but flags."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        flags = ("resume", "again")
        return {n: value for n, value in named.items() if value is not None and n not in flags}

    def plan(self, method: str, seed: int, **others: object) -> Plan:
        """A run of a method on this set-up."""
        import torch

        from holdfast.bench.plan import Run as Plan

        usual = {
            "device": "cuda" if torch.cuda.is_available() else "cpu",
            "threads": self.shared_by(1).threads,
        }
        known = {one.name for one in fields(Plan)}
        given = {name: value for name, value in self.given.items() if name in known}
        return Plan(**{**usual, **given, **others, "method": method, "seed": seed})  # type: ignore[arg-type]

    def shared_by(self, jobs: int) -> Setup:
        """The same, with the cores shared among so many runs at a time."""
        if jobs < 1:
            raise ValueError(f"jobs is how many runs go on at a time, at least 1, not {jobs}.")
        if self.threads is not None:
            return self
        return replace(self, threads=max(1, (os.cpu_count() or 1) // jobs))

    @property
    def all_seeds(self) -> range:
        first, count = self.seed or 0, 1 if self.seeds is None else self.seeds
        if count < 1:
            raise ValueError(f"seeds is how many seeds, at least 1, not {count}.")
        return range(first, first + count)

    @property
    def place(self) -> Path:
        """Where runs lie."""
        return RUNS if self.out is None else self.out

    @property
    def every(self) -> float:
        """Seconds between two snapshots."""
        from holdfast.bench.run import SNAPSHOT_SECONDS

        seconds = SNAPSHOT_SECONDS if self.snapshot is None else self.snapshot
        if not seconds >= 0:
            raise ValueError(
                f"snapshot is how many seconds lie between two snapshots, at least 0 (one after "
                f"each batch), not {seconds:g}."
            )
        return seconds


@dataclass(frozen=True)
class Run:
    """Show methods the same stream, and compare them."""

    setup: Setup = Setup()
    method: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(aliases=["-m"])
    ] = ()
    """As in eata, eata+debias, or 'tent(lr=0.001)+debias'; one of your own is path/to/file.py:Class
    or package.module:Class. Once for each. By itself: frozen, bn, tent, eata, debias,
    eata+debias."""
    stream: str = "continual"
    """continual, gradual, mixed, correlated(gamma=0.1), recurring(visits=20), single, paced,
    labelshift, noisy, endless: the kind of drift, with its settings; `holdfast streams` and
    `holdfast card STREAM` show them."""
    domains: str | None = None
    """Which domains come, in this order, as in fog,snow; clean images only where original is among
    them. Default: the stream's own."""
    preset: str | None = None
    """cifar100-c or imagenet-c: a paper's settings to the letter."""
    window: int | None = None
    """Have methods see the latest so many images at once, where batches are small."""
    intruders: str | None = None
    """A clean set of images that belong to no class, for the stream noisy(kind=other)."""
    analysis: bool = False
    """Also the paper's distances between features of classes; one more forward a batch."""
    jobs: int = 1
    """Runs at a time; what they say of time is then worth less."""
    markdown: Path | None = None
    """A file to write the tables into as well."""

    def run(self) -> None:
        from holdfast.results.documents import run_document
        from holdfast.results.writers.markdown import write_markdown
        from holdfast.results.writers.terminal import Page

        setup = self.setup.shared_by(self.jobs)
        planned = (
            setup.plan(
                method,
                seed,
                stream=self.stream,
                domains=self.domains,
                preset=self.preset,
                window=self.window,
                intruders=self.intruders,
                analysis=self.analysis,
            )
            for method in self.method or METHODS
            for seed in setup.all_seeds
        )
        runs: dict[str, Plan] = {}
        for run in planned:
            runs.setdefault(run.identity, run)
        outcomes = perform_watched(list(runs.values()), setup, self.jobs)
        blocks = run_document(finished(outcomes))
        show(Page(blocks))
        if self.markdown is not None:
            write_markdown(self.markdown, blocks)
        conclude(outcomes, setup)


def perform_watched(runs: Sequence[Plan], setup: Setup, jobs: int) -> list[Outcome]:
    """Do the runs, with a table that fills or, of several at a time, with a bar for each."""
    from holdfast.bench.display.board import Board
    from holdfast.bench.display.preview import announce, preview
    from holdfast.bench.display.roster import Roster
    from holdfast.bench.many import perform_all
    from holdfast.bench.materials import Materials

    tell_of_other_code(runs, setup.place)
    materials = Materials(setup.place / "cache")
    announce(preview(runs, materials))
    do = partial(
        perform_all,
        runs,
        setup.place,
        resume=setup.resume,
        again=setup.again,
        every=setup.every,
        materials=materials,
    )
    if jobs > 1:
        with Roster(runs) as roster:
            return do(jobs=jobs, tell=roster)
    with Board(runs) as board:
        return do(watcher=board)


def tell_of_other_code(runs: Sequence[Plan], out: Path) -> None:
    """Say why runs that seem to be there are run anew."""
    from holdfast.results.other_code import of_other_code

    found = of_other_code(runs, out)
    if found:
        stopped = sum(not one.finished for one in found)
        them, they = ("it", "It is") if len(found) == 1 else ("them", "They are")
        part = f", {'and it' if len(found) == 1 else f'{stopped} of them'} stopped"
        print(
            f"Note: {out} has {len(found)} of these runs as other code made {them}"
            f"{part if stopped else ''}. {they} run anew; what is there is left as it is.",
            file=sys.stderr,
        )


def finished(outcomes: Sequence[Outcome]) -> list[RunFolder]:
    """The folders of the runs that are finished; if there is none, why."""
    folders = [one.folder for one in outcomes if one.folder is not None]
    if not folders:
        raise ValueError(outcomes[0].error)
    return folders


def conclude(outcomes: Sequence[Outcome], setup: Setup) -> None:
    """Say what failed, and where the runs are."""
    from holdfast.bench.display.roster import labels

    names = labels([one.run for one in outcomes])
    failed = [(name, one) for name, one in zip(names, outcomes, strict=True) if one.error]
    for name, one in failed:
        print(f"Failed: {name}: {one.error}")
    print(f"Runs: {setup.place}")
    if failed:
        raise SystemExit(1)
