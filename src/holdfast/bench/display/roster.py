"""What is seen while many runs go on: bars on a terminal, elsewhere a line for each that ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from holdfast.bench.many import Outcome, Progress
from holdfast.bench.names import apart
from holdfast.bench.plan import Run


class Roster:
    """`with Roster(runs) as roster: perform_all(runs, out, tell=roster)`."""

    def __init__(self, runs: Sequence[Run], console: Console | None = None):
        self.console = Console(stderr=True) if console is None else console
        self.names = labels(runs)
        self.outcomes: dict[int, Outcome] = {}
        self._last: dict[int, Progress] = {}
        self._rows: dict[int, TaskID] = {}
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figure]}"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )
        self._all = self._bars.add_task("runs", total=len(runs), figure="")

    def __enter__(self) -> Roster:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    @property
    def finished(self) -> int:
        return sum(one.folder is not None for one in self.outcomes.values())

    def __call__(self, number: int, news: Progress | Outcome) -> None:
        if isinstance(news, Progress):
            self._last[number] = news
            if number not in self._rows:
                self._rows[number] = self._bars.add_task(self.names[number], figure="")
            mean = "" if math.isnan(news.accuracy) else f"{news.accuracy:.2f} %"
            self._bars.update(
                self._rows[number], total=news.batches, completed=news.done, figure=mean
            )
        else:
            self.outcomes[number] = news
            if number in self._rows:
                self._bars.remove_task(self._rows.pop(number))
            failed = len(self.outcomes) - self.finished
            figure = f"{failed} failed" if failed else ""
            self._bars.update(self._all, completed=len(self.outcomes), figure=figure)
            self._say(number, news)

    def _say(self, number: int, outcome: Outcome) -> None:
        """A line, where no bars show it."""
        if self.console.is_terminal:
            return
        last = self._last.get(number)
        mean = f": mean {last.accuracy:.2f} %, {last.done} batches" if last else ""
        what = f"failed: {outcome.error}" if outcome.error else f"finished{mean}"
        count = f"[{len(self.outcomes)}/{len(self.names)}]"
        print(count, self.names[number], what, file=self.console.file, flush=True)


def labels(runs: Sequence[Run]) -> list[str]:
    """What runs are called among each other, with their seeds."""
    return [f"{name} seed {run.seed}" for name, run in zip(apart(runs), runs, strict=True)]
