"""Progress of long work: a bar with rate and time left, silent when not on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.progress import Progress


class Advance(Protocol):
    def __call__(self, count: int) -> None: ...


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Advance]:
    """`with progress("Prototypes", 50_000) as advance: …; advance(64)`. Silent without rich."""
    try:
        bar = _bar()
    except ModuleNotFoundError:
        yield lambda count: None
        return
    with bar:
        row = bar.add_task(what, total=total)
        yield lambda count: bar.advance(row, count)


def _bar() -> Progress:
    from rich import progress as rich
    from rich.console import Console
    from rich.text import Text

    class Rate(rich.ProgressColumn):
        def render(self, task: rich.Task) -> Text:
            return Text(f"{task.speed:.0f}/s" if task.speed else "")

    console = Console(stderr=True)
    return rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        Rate(),
        rich.TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
