"""`holdfast paper list` and `holdfast paper ID`: the paper's experiments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from holdfast.cli.options import PaperSetup, Specs
from holdfast.cli.run import conclude, finished, perform_watched, show_blocks
from holdfast.util.terminal import columns, show

if TYPE_CHECKING:
    from holdfast.bench.store import RunFolder
    from holdfast.paper.experiments import Line


@dataclass(frozen=True)
class Paper:
    """Run an experiment of the paper, and show its table: ours, and the published one."""

    id: tyro.conf.Positional[str]
    """An experiment, such as table-imagenet; or list, which shows them all."""
    setup: PaperSetup = PaperSetup()
    method: Specs = ()
    """Only these of its methods; once for each. Default: all."""
    preset: str | None = None
    """cifar100-c or imagenet-c. Default: that of the data, else that of the experiment."""
    jobs: int = 1
    """Runs at a time."""
    markdown: Path | None = None
    """A file to write the table into as well."""

    def run(self) -> None:
        from holdfast.paper.answer import chosen, evaluate, plans
        from holdfast.paper.document import document
        from holdfast.paper.experiments import experiments, find_experiment

        if self.id == "list":
            table = columns("id", "in the paper", "runs", "what it asks")
            for one in experiments().values():
                runs = str(len(one.lines) * len(one.streams))
                table.add_row(one.id, one.where, runs, one.asks)
            show(table)
            return
        experiment = find_experiment(self.id)
        if self.method:
            experiment = chosen(experiment, self.method)
        if self.jobs > 1 and "time" in experiment.measures:
            raise ValueError(f"{self.id} takes the time: leave out --jobs, since runs disturb it.")
        setup = self.setup.shared_by(self.jobs)
        planned = plans(experiment, setup, self.preset)
        outcomes = perform_watched([run for _, run in planned], setup, self.jobs)
        finished(outcomes)  # none is an error
        found: dict[Line, list[RunFolder]] = {}
        for (line, _), outcome in zip(planned, outcomes, strict=True):
            if outcome.folder is not None:
                found.setdefault(line, []).append(outcome.folder)
        show_blocks(document(evaluate(experiment, found)), self.markdown)
        conclude(outcomes, setup.place)
