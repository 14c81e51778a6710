"""Progress of long work: a bar with rate and time left, silent when not on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress import Task as Row


class Advance(Protocol):
    def __call__(self, count: int) -> None: ...


class _Rate(TextColumn):
    def __init__(self) -> None:
        super().__init__("")

    def render(self, task: Row):  # type: ignore[no-untyped-def]
        self.text_format = f"{task.speed:.0f}/s" if task.speed else ""
        return super().render(task)


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """`with progress("Prototypes", 50_000) as advance: …; advance(64)`."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    with bar:
        row = bar.add_task(what, total=total)
        yield lambda count: bar.advance(row, count)
