"""Many runs: in this process, or each in one of its own.

A run that fails is noted, and the others go on.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any

from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.bench.run import SNAPSHOT_SECONDS, Progress, ignore, perform
from holdfast.bench.store import RunFolder
from holdfast.util.cpu import tune_cpu
from holdfast.util.notices import plain_warnings
from holdfast.util.progress import stoppable

# Errors that a user, the data or the machine may cause. Of any other, the message names the type.
FAILURES = (ValueError, OSError, RuntimeError)

# Seconds between two pieces of news of a run, and between two looks at whether to stop.
NEWS_SECONDS = 0.2
LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Ended:
    """How a run ended: in a folder, or with an error."""

    run: Run
    folder: RunFolder | None = None
    error: str | None = None


# Is told news of a run, by the run's number in the list.
Tell = Callable[[int, Progress | Ended], None]


def perform_all(
    runs: Sequence[Run],
    out: Path,
    *,
    resume: bool = True,
    again: bool = False,
    every: float = SNAPSHOT_SECONDS,
    jobs: int = 1,
    tell: Tell = ignore,
    materials: Materials | None = None,
) -> list[Ended]:
    """Do the runs, `jobs` at a time. Those that go one by one use `materials`, if given."""
    options = {"resume": resume, "again": again, "every": every}
    if jobs > 1 and len(runs) > 1:
        return _in_processes(runs, out, options, jobs, tell)
    materials = materials or Materials(out / "cache")
    outcomes = []
    for number, run in enumerate(runs):
        outcomes.append(attempt(run, materials, out, partial(tell, number), **options))
        tell(number, outcomes[-1])
    return outcomes


def attempt(
    run: Run, materials: Materials, out: Path, tell: Callable[[Progress], None], **options: Any
) -> Ended:
    """A run, or why there is none; `options` as for `perform`."""
    try:
        folder = perform(run, materials, out, tell=tell, **options)
    except Exception as error:
        known = isinstance(error, FAILURES) and str(error)
        message = str(error) if known else f"{type(error).__name__}: {error}".rstrip(": ")
        return Ended(run, error=" ".join(message.split()))
    return Ended(run, folder)


def sparing(tell: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """Passes on the first batch and the last one, and of those between one every now and then."""
    last_told = -math.inf

    def pass_on(progress: Progress) -> None:
        nonlocal last_told
        now = time.monotonic()
        if now - last_told >= NEWS_SECONDS or progress.done == progress.batches:
            tell(progress)
            last_told = now

    return pass_on


def _in_processes(
    runs: Sequence[Run], out: Path, options: Mapping[str, Any], jobs: int, tell: Tell
) -> list[Ended]:
    """A fresh process for each run: one that dies takes no other with it."""
    outcomes: dict[int, Ended] = {}
    waiting = deque(enumerate(runs))
    going: dict[Any, tuple[int, Any]] = {}
    with stoppable() as stop:
        try:
            while going or (waiting and not stop.asked):
                while waiting and len(going) < jobs and not stop.asked:
                    number, run = waiting.popleft()
                    receiver, process = _start(run, out, options)
                    going[receiver] = number, process
                arrived: list[Any] = connection.wait(list(going), LOOK_SECONDS)
                for ready in arrived:
                    number, process = going[ready]
                    try:
                        news = ready.recv()
                    except (EOFError, OSError):  # the process is at its end
                        ready.close()
                        del going[ready]
                        process.join()
                        if number in outcomes:
                            continue
                        news = Ended(runs[number], error=_describe_exit(process.exitcode))
                    if isinstance(news, Ended):
                        outcomes[number] = news
                        if stop.asked and news.error:
                            continue  # it was stopped, and has not failed
                    tell(number, news)
                if stop.asked and jobs:
                    jobs = 0  # start no more runs, and ask each only once
                    for _, process in going.values():
                        process.terminate()
        finally:
            for _, process in going.values():
                process.kill()
                process.join()
    if stop.asked:
        raise KeyboardInterrupt
    return [outcomes[number] for number in range(len(runs))]


def _start(run: Run, out: Path, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """Start a process for a run: the end of a pipe at which its news arrives, and the process."""
    context = get_context("spawn")  # torch's threads do not survive a fork
    receiver, sender = context.Pipe(duplex=False)
    # Not a daemon: daemons may not start processes that read images ahead.
    process = context.Process(target=_work, args=(sender, run, out, options))
    with _ignore_sigint():
        process.start()
    sender.close()
    return receiver, process


def _work(sender: Any, run: Run, out: Path, options: Mapping[str, Any]) -> None:
    """What a process does: one run."""
    tune_cpu()
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C is for the parent to hear, which then asks each to stop, once
    threading.Thread(target=_follow_parent, daemon=True).start()

    def tell(news: Progress | Ended) -> None:
        with suppress(OSError):  # the parent is gone
            sender.send(news)

    try:
        materials = Materials(out / "cache")
        with plain_warnings():
            tell(attempt(run, materials, out, sparing(tell), **options))
    except KeyboardInterrupt:
        tell(Ended(run, error="It was stopped. Repeat the command to go on with it."))


def _follow_parent() -> None:
    """Stop the run, as if asked to, once the parent is gone and nobody waits for it."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _ignore_sigint() -> Iterator[None]:
    """A process that is started in here ignores Ctrl-C until it sets a handler of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"Its process ended with exit code {code}."
    name = signal.Signals(-code).name
    cause = ", as when memory runs out" if name == "SIGKILL" else ""
    return f"Its process was killed, by {name}{cause}. Repeat the command to go on with it."
