"""`holdfast run`: methods on a stream, side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.bench.given import seconds_between_snapshots
from holdfast.cli.options import Setup, Specs
from holdfast.util.terminal import show

if TYPE_CHECKING:
    from holdfast.bench.many import Ended
    from holdfast.bench.plan import Run as Plan
    from holdfast.bench.store import RunFolder
    from holdfast.results.table import Block

METHODS = ("frozen", "bn", "tent", "eata", "debias", "eata+debias")


@dataclass(frozen=True)
class Run:
    """Show methods the same stream, and compare them."""

    setup: Setup = Setup()
    method: Specs = ()
    """As in eata, eata+debias, or 'tent(lr=0.001)+debias'; one of your own is path/to/file.py:Class
    or package.module:Class. Once for each. Default: frozen, bn, tent, eata, debias,
    eata+debias."""
    jobs: int = 1
    """Runs at a time; what they say of time is then worth less."""
    markdown: Path | None = None
    """A file to write the tables into as well."""

    def run(self) -> None:
        from holdfast.results.tables import run_document

        setup = self.setup.shared_by(self.jobs)
        planned = (
            setup.plan(method, seed)
            for method in self.method or METHODS
            for seed in setup.all_seeds
        )
        runs: dict[str, Plan] = {}
        for run in planned:
            runs.setdefault(run.identity, run)
        outcomes = perform_watched(list(runs.values()), setup, self.jobs)
        show_blocks(run_document(finished(outcomes)), self.markdown)
        conclude(outcomes, setup.place)


def perform_watched(runs: Sequence[Plan], setup: Setup, jobs: int) -> list[Ended]:
    """Do the runs, with a table that fills or, of several at a time, with a bar for each."""
    from holdfast.bench.display import Board, Roster, announce, preview
    from holdfast.bench.many import perform_all
    from holdfast.bench.materials import Materials

    tell_of_other_code(runs, setup.place)
    materials = Materials(setup.place / "cache")
    announce(preview(runs, materials))
    with Roster(runs) if jobs > 1 else Board(runs) as display:
        return perform_all(
            runs,
            setup.place,
            resume=setup.resume,
            again=setup.again,
            every=seconds_between_snapshots(setup.snapshot),
            jobs=jobs,
            tell=display,
            materials=materials,
        )


def tell_of_other_code(runs: Sequence[Plan], out: Path) -> None:
    """Say why runs that seem to be there are run anew."""
    from holdfast.results.gather import of_other_code

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


def finished(outcomes: Sequence[Ended]) -> list[RunFolder]:
    """The folders of the runs that are finished; if there is none, why."""
    folders = [one.folder for one in outcomes if one.folder is not None]
    if not folders:
        raise ValueError(outcomes[0].error)
    return folders


def show_blocks(blocks: Sequence[Block], markdown: Path | None = None) -> None:
    """What is found, on the terminal, and in a file as well."""
    from holdfast.results.writers import Page, write_markdown

    show(Page(blocks))
    if markdown is not None:
        write_markdown(markdown, blocks)


def conclude(outcomes: Sequence[Ended], out: Path) -> None:
    """Say what failed, and where the runs are."""
    from holdfast.bench.plan import labels

    names = labels([one.run for one in outcomes])
    failed = [(name, one) for name, one in zip(names, outcomes, strict=True) if one.error]
    for name, one in failed:
        print(f"Failed: {name}: {one.error}")
    print(f"Runs: {out}")
    if failed:
        raise SystemExit(1)
