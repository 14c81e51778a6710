"""What is seen of runs: before they begin, in lines, and while they go on.

preview  how long each stream is, and what to know of it and of the methods
Board    of one at a time: a table that fills
Roster   of many at a time: a bar for each

Where there is no terminal, board and roster print plain lines.
"""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from holdfast.bench.many import Ended
from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run, apart, labels, short
from holdfast.bench.run import Progress
from holdfast.data.streams import Flow
from holdfast.explain.fit import advise
from holdfast.util.terminal import break_name, columns

if TYPE_CHECKING:
    from typing_extensions import Self

# A table with a row for each method needs this much room; on a narrower terminal it is turned.
WIDE = 150
# And then its headings are broken to this width, where they can be.
NARROW = 8


def announce(lines: Iterable[str]) -> None:
    """To stderr, where progress goes too, so that stdout holds results only."""
    for line in lines:
        print(line, file=sys.stderr, flush=True)


def preview(runs: Sequence[Run], materials: Materials) -> list[str]:
    """Lines to read before the runs begin. What is wrong with a run, the run itself says."""
    return [*preview_streams(runs, materials), *preview_methods(runs, materials)]


def preview_streams(
    runs: Sequence[Run], materials: Materials, *, errors: bool = False
) -> list[str]:
    """How many images and batches each stream has, for how many runs, and its notices; `errors`:
    also why a stream or a model cannot be opened, where no run is to say it."""
    flows: dict[tuple[object, ...], Flow] = {}
    lines: dict[str, int] = {}
    notices: dict[str, None] = {}
    failed: dict[str, str] = {}
    for run in runs:
        try:
            key = (id(materials.data(run)), str(run.resolved_stream), run.stream.intruders)
            flow = flows[key] = flows.get(key) or materials.flow(run)
        except Exception as error:
            failed.setdefault(_why(error), f"{run.data.name}, {run.resolved_stream}")
            continue
        window = f", window {run.effective_window}" if run.effective_window else ""
        line = f"{Path(run.data.name).name}, {run.resolved_stream}: {flow.size}{window}"
        lines[line] = lines.get(line, 0) + 1
        notices |= dict.fromkeys(flow.notices)
    sizes = [f"{line}; {count} run{'s' * (count > 1)}" for line, count in lines.items()]
    if errors:
        for run in runs:
            try:
                materials.model(run)
            except Exception as error:
                failed.setdefault(_why(error), f"the model {run.model.name or ''}".strip())
        notices |= {f"{subject} cannot be opened: {why}": None for why, subject in failed.items()}
    return sizes + [f"note: {text}" for text in notices]


def _why(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def preview_methods(runs: Sequence[Run], materials: Materials) -> list[str]:
    """What `holdfast doctor` says of settings and of the batch size, and of which methods."""
    titles: dict[str, dict[str, None]] = {}
    for run in runs:
        try:
            model, classes = materials.model(run), materials.classes(run)
        except Exception:
            continue
        batch = max(run.resolved_stream.batch, run.effective_window or 1)
        for text in advise(run.composition, model, batch, classes):
            titles.setdefault(text, {})[run.title] = None
    return [f"note: {', '.join(names)}: {text}." for text, names in titles.items()]


class Display(ABC):
    """`with Board(runs) as board: perform_all(runs, out, tell=board)`."""

    screen: Live | Bars

    def __init__(self, runs: Sequence[Run], console: Console | None = None):
        self.console = Console(stderr=True) if console is None else console
        self.names = labels(runs)
        self.latest: dict[int, Progress] = {}
        self.outcomes: dict[int, Ended] = {}

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.screen.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.console.is_terminal:
            self.screen.stop()

    @property
    def finished(self) -> int:
        return sum(ended.folder is not None for ended in self.outcomes.values())

    def __call__(self, number: int, news: Progress | Ended) -> None:
        before = self.latest.get(number)
        if isinstance(news, Progress):
            self.latest[number] = news
        else:
            self.outcomes[number] = news
            if news.error:
                self.latest.pop(number, None)
        for line in self.update(number, before, news):
            if not self.console.is_terminal:
                print(line, file=self.console.file, flush=True)

    @abstractmethod
    def update(self, number: int, before: Progress | None, news: Progress | Ended) -> Iterator[str]:
        """Take in news of a run, and yield the lines that tell it; `before` is the news before."""


class Board(Display):
    """A table of accuracies by method and domain; in lines, one for each domain."""

    def __init__(self, runs: Sequence[Run], console: Console | None = None):
        super().__init__(runs, console)
        self.titles = apart(runs)
        self._now: int | None = None
        self._start, self._before = 0.0, 0
        self.screen = Live(
            get_renderable=self.render, console=self.console, refresh_per_second=4, transient=True
        )

    def update(self, number: int, before: Progress | None, news: Progress | Ended) -> Iterator[str]:
        if isinstance(news, Progress) and before is None:
            self._start, self._before = time.monotonic(), news.done
        self._now = number if isinstance(news, Progress) else None
        name, last = self.names[number], self.latest.get(number)
        if last is None:
            return
        ended = isinstance(news, Ended)
        if before is None:
            if 0 < last.done < last.batches:
                yield f"{name}: goes on at batch {last.done} of {last.batches}"
        elif before.domain in last.scores and (ended or before.domain != last.domain):
            yield f"{name}: {before.domain} {last.scores[before.domain]:.2f} %"
        if isinstance(news, Ended) and news.folder is not None:
            yield f"{name}: mean {last.accuracy:.2f} %, {last.done} batches, {news.folder.path}"

    def render(self) -> Group:
        """As it is now; it may be drawn in another thread."""
        cells = {title: self._cells(title) for title in self.titles}
        domains = list(dict.fromkeys(name for row in cells.values() for name in row))
        if self.console.width >= WIDE:
            table = columns("method", *map(short, domains))
            for title, row in cells.items():
                table.add_row(Text(title), *(row.get(name, Text("")) for name in domains))
        else:
            table = columns("domain", *(break_name(title, NARROW) for title in cells))
            for name in domains:
                table.add_row(name, *(row.get(name, Text("")) for row in cells.values()))
        return Group(table, self._progress())

    def _cells(self, title: str) -> dict[str, Text]:
        """Accuracies so far, the mean over seeds; the domain at hand in italics."""
        runs = {n: run for n, run in list(self.latest.items()) if self.titles[n] == title}
        at_hand = runs[self._now].domain if self._now in runs else None
        cells = {}
        for name in dict.fromkeys(name for run in runs.values() for name in run.scores):
            values = [run.scores[name] for run in runs.values() if name in run.scores]
            style = "italic cyan" if name == at_hand else ""
            cells[name] = Text(f"{sum(values) / len(values):.1f}", style)
        return cells

    def _progress(self) -> Text:
        number, count = self._now, len(self.names)
        if number is None:
            return Text(f"run {min(len(self.outcomes) + 1, count)} of {count}: preparing …")
        last = self.latest[number]
        spent, done = time.monotonic() - self._start, last.done - self._before
        rate = done / spent if spent and done else 0.0
        remaining = (last.batches - last.done) / rate if rate else 0.0
        return Text(
            f"run {number + 1} of {count}: {self.names[number]}, "
            f"batch {last.done} of {last.batches}  "
            + (f"{rate:.1f} batches/s, {clock(remaining)} left" if rate else "")
        )


class Roster(Display):
    """Bars for all runs and for each that goes on; in lines, one for each that ends."""

    def __init__(self, runs: Sequence[Run], console: Console | None = None):
        super().__init__(runs, console)
        self._rows: dict[int, TaskID] = {}
        self.screen = self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[metric]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self._all = self._bars.add_task("runs", total=len(runs), metric="")

    def update(self, number: int, before: Progress | None, news: Progress | Ended) -> Iterator[str]:
        if isinstance(news, Progress):
            if number not in self._rows:
                self._rows[number] = self._bars.add_task(self.names[number], metric="")
            mean = "" if math.isnan(news.accuracy) else f"{news.accuracy:.2f} %"
            row = self._rows[number]
            self._bars.update(row, total=news.batches, completed=news.done, metric=mean)
            return
        if number in self._rows:
            self._bars.remove_task(self._rows.pop(number))
        count, failed = len(self.outcomes), len(self.outcomes) - self.finished
        self._bars.update(self._all, completed=count, metric=f"{failed} failed" if failed else "")
        mean = f": mean {before.accuracy:.2f} %, {before.done} batches" if before else ""
        outcome = f"failed: {news.error}" if news.error else f"finished{mean}"
        yield f"[{count}/{len(self.names)}] {self.names[number]} {outcome}"


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
