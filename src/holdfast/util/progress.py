"""Long work: a bar with rate and time left, silent when not on a terminal; and stopping at a good
moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

# Takes how many more are done.
Advance = Callable[[int], None]


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Advance]:
    """`with progress("Prototypes", 50_000) as advance: …; advance(64)`. Silent without rich."""
    try:
        bar = _bar()
    except ModuleNotFoundError:
        yield lambda count: None
        return
    with bar:
        row = bar.add_task(title, total=total)
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


class Stop:
    """Whether somebody has asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # asked again: at once
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM wait for the batch at hand: `with stoppable() as stop:`, and look at
    `stop.asked` between two batches."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread hears signals
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
