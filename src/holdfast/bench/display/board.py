"""What is seen while runs go on: a table that fills, or plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.bench.metrics.recorder import Recorder
from holdfast.bench.metrics.seen import MIXED, Seen
from holdfast.bench.names import apart, short
from holdfast.bench.plan import Run
from holdfast.bench.store import RunFolder
from holdfast.util.terminal import break_name, columns

# A table with a row for each method needs this much room; on a narrower terminal it is turned.
WIDE = 150
# And then its headings are broken to this width, where they can be.
NARROW = 8


class Board:
    """Watches runs: `with Board(runs) as board: perform(run, …, watcher=board)`."""

    def __init__(self, runs: Sequence[Run], console: Console | None = None):
        self.console = Console(stderr=True) if console is None else console
        self._names = dict(zip(runs, apart(runs), strict=True))
        self.titles = list(dict.fromkeys(self._names.values()))
        self.total = len(runs)
        self.finished = 0
        self.scores: dict[str, list[dict[str, float]]] = {title: [] for title in self.titles}
        self._run: Run | None = None
        self._recorder: Recorder | None = None
        self._batches = self._done = self._before = 0
        self._domain = ""
        self._start = 0.0
        self._live = Live(
            get_renderable=self.render, console=self.console, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Board:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    @property
    def _name(self) -> str:
        """Of the run at hand."""
        return "" if self._run is None else self._names.get(self._run, self._run.title)

    def begins(self, run: Run, recorder: Recorder, batches: int) -> None:
        self._run, self._recorder, self._batches = run, recorder, batches
        self._done = self._before = recorder.batches
        self._start = time.monotonic()
        self._domain = next(reversed(recorder.domains), "")
        if 0 < self._before < batches:
            self._say(f"goes on at batch {self._before} of {batches}")

    def sees(self, seen: Seen) -> None:
        self._done += 1
        domain = MIXED if seen.domain is None else seen.domain
        if domain != self._domain:
            self._say_score()
            self._domain = domain

    def ends(self, folder: RunFolder, recorder: Recorder) -> None:
        if self._run is not None:
            self._say_score()
            mean = recorder.mean_accuracy
            self._say(f"mean {mean:.2f} %, {self._done} batches, {folder.path}")
            scores = {name: tally.accuracy for name, tally in recorder.domains.items()}
            self.scores[self._name].append(scores)
        self.finished += 1
        self._run = self._recorder = None

    def _say_score(self) -> None:
        if self._recorder is not None and self._domain in self._recorder.domains:
            tally = self._recorder.domains[self._domain]
            self._say(f"{self._domain} {tally.accuracy:.2f} %")

    def _say(self, what: str) -> None:
        """A line, where no table shows it."""
        if not self.console.is_terminal and self._run is not None:
            print(
                f"{self._name} seed {self._run.seed}: {what}",
                file=self.console.file,
                flush=True,
            )

    # The table.

    def render(self) -> Group:
        cells = {title: self._cells(title) for title in self.titles}
        domains = list(dict.fromkeys(name for row in cells.values() for name in row))
        table = (
            self._by_method(cells, domains)
            if self.console.width >= WIDE
            else self._by_domain(cells, domains)
        )
        return Group(table, self._progress())

    def _cells(self, title: str) -> dict[str, Text]:
        """Accuracies so far, the mean over seeds; the domain at hand in italics."""
        scores = list(self.scores[title])
        now = self._name == title
        if now and self._recorder is not None:
            domains = self._recorder.domains
            scores.append({name: tally.accuracy for name, tally in domains.items()})
        names = dict.fromkeys(name for one in scores for name in one)
        found = {}
        for name in names:
            values = [one[name] for one in scores if name in one]
            style = "italic cyan" if now and name == self._domain else ""
            found[name] = Text(f"{sum(values) / len(values):.1f}", style)
        return found

    def _by_method(self, cells: dict[str, dict[str, Text]], domains: list[str]) -> Table:
        table = columns("method", *map(short, domains))
        for title, row in cells.items():
            table.add_row(Text(title), *(row.get(name, Text("")) for name in domains))
        return table

    def _by_domain(self, cells: dict[str, dict[str, Text]], domains: list[str]) -> Table:
        table = columns("domain", *(break_name(title, NARROW) for title in self.titles))
        for name in domains:
            table.add_row(name, *(row.get(name, Text("")) for row in cells.values()))
        return table

    def _progress(self) -> Text:
        if self._run is None:
            return Text(f"run {min(self.finished + 1, self.total)} of {self.total}: preparing …")
        spent, done = time.monotonic() - self._start, self._done - self._before
        rate = done / spent if spent and done else 0.0
        left = (
            f"{rate:.1f} batches/s, {clock((self._batches - self._done) / rate)} left"
            if rate
            else ""
        )
        return Text(
            f"run {self.finished + 1} of {self.total}: {self._name} seed {self._run.seed}, "
            f"batch {self._done} of {self._batches}  {left}"
        )


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
