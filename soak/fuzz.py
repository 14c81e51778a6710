"""Malformed and hostile inputs at every door: nothing changes, and each error says what to do."""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import torch
from hypothesis import HealthCheck, Phase, given

from holdfast.util.progress import progress
from holdfast.util.terminal import columns, show
from soak.hostile.door import Door, Harm, find_fault, skeleton
from soak.hostile.images import AdapterDoor
from soak.hostile.loaders import LoaderDoor
from soak.hostile.manifests import ManifestDoor
from soak.hostile.sets import SetDoor
from soak.hostile.specs import MethodDoor, StreamDoor
from soak.hostile.state_files import SourceDoor, StateDoor
from soak.verdict import Verdict

SHARES: dict[type[Door], int] = {
    AdapterDoor: 30,
    LoaderDoor: 10,
    StateDoor: 16,
    SourceDoor: 10,
    SetDoor: 12,
    MethodDoor: 8,
    StreamDoor: 6,
    ManifestDoor: 8,
}
"""Where inputs come in, and how many of a hundred go there."""
DOORS = {door.name: door for door in SHARES}

SECONDS = 20  # no input may take longer
GIGABYTES = 4  # nor ask for more memory


class Hang(BaseException):
    """An input took too long."""


@dataclass
class Tally:
    """What became of the inputs at one door."""

    door: str
    refused: int = 0
    accepted: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    faults: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Each thing that was found wrong, with the shortest input."""

    @property
    def tried(self) -> int:
        return self.refused + self.accepted

    def fault(self, message: str, example: str) -> None:
        key = skeleton(message)
        known = self.faults.get(key)
        if known is None or len(example) < len(known[1]):
            self.faults[key] = message, example


def try_one(door: Door, given: Any, tally: Tally) -> None:
    before = door.state()
    try:
        with warnings.catch_warnings(), _within(SECONDS):
            warnings.simplefilter("ignore")
            door.attempt(given)
    except Harm as harm:
        tally.refused += 1
        tally.fault(str(harm), door.describe(given)[:300])
    except Hang:
        tally.refused += 1
        tally.fault(f"it took more than {SECONDS} seconds", door.describe(given)[:300])
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of a Rust library is no Exception
        tally.refused += 1
        tally.errors[type(error).__name__] += 1
        fault = find_fault(error)
        if fault is not None:
            tally.fault(fault, door.describe(given)[:300])
    else:
        tally.accepted += 1
        return
    if door.state() != before:
        tally.fault("it was refused, and yet something changed", door.describe(given)[:300])


def fuzz_test(door: Door, tally: Tally, inputs: int, seed: int, report: Any) -> Any:
    """A hypothesis test of a door: call it, or give its `hypothesis.fuzz_one_input` to a fuzzer
    that goes by coverage."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(door.inputs())
    def test(given: Any) -> None:
        try_one(door, given, tally)
        report(tally.tried)

    return test


def knock(name: str, inputs: int, seed: int, report: Any = lambda tried: None) -> Tally:
    """Try that many inputs at a door."""
    torch.set_num_threads(1)
    tally = Tally(name)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        door = DOORS[name](Path(folder))
        while tally.tried < inputs:  # what is alike is left out of a round
            before = tally.tried
            fuzz_test(door, tally, inputs - tally.tried, seed + tally.tried, report)()
            if tally.tried == before:
                raise RuntimeError(f"{name} has no more inputs than {before}")
    return tally


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _work(name: str, inputs: int, seed: int, sender: Any) -> None:
    """In a process of its own, which may crash or run out of memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + GIGABYTES * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    sender.send(knock(name, inputs, seed, sender.send))


def _knock_apart(name: str, inputs: int, seed: int, advance: Any) -> Tally:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(name, inputs, seed, sender))
    process.start()
    sender.close()
    tried = 0
    with contextlib.suppress(EOFError):
        while True:
            news = receiver.recv()
            if isinstance(news, Tally):
                process.join()
                return news
            advance(news - tried)
            tried = news
    process.join()
    tally = Tally(name, refused=tried + 1)
    tally.fault(f"its process ended with {process.exitcode}", f"input {tried + 1} of seed {seed}")
    return tally


def fuzz(
    inputs: int = 10_000,
    seed: int = 0,
    doors: tuple[str, ...] = tuple(DOORS),
    apart: bool = True,
) -> Verdict:
    """Malformed and hostile inputs: none may change any state, hang or crash, and each error says
    what was expected or what to do.

    inputs: how many in all. doors: where they are tried. apart: each door in a process of its own,
    so that a crash is found and told.
    """
    begun, shares = time.monotonic(), {name: SHARES[DOORS[name]] for name in doors}
    tallies = []
    for name, share in shares.items():
        count = -(-inputs * share // sum(shares.values()))
        with progress(f"Fuzz, {name}", count) as advance:
            arguments = (name, count, seed)
            tally = _knock_apart(*arguments, advance) if apart else knock(*arguments)
        tallies.append(tally)
        print(f"  {name}: {tally.tried:,} tried, {len(tally.faults)} faults", file=sys.stderr)
    table = columns("door", "tried", "refused", "accepted", "errors", "faults")
    for tally in tallies:
        errors = ", ".join(f"{kind} {count:,}" for kind, count in tally.errors.most_common())
        numbers = (tally.tried, tally.refused, tally.accepted)
        table.add_row(tally.door, *map("{:,}".format, numbers), errors, str(len(tally.faults)))
    show(table)
    failures = [
        f"{tally.door}: {message} (with {example})"
        for tally in tallies
        for message, example in tally.faults.values()
    ]
    counts = {
        "seed": seed,
        "inputs": f"{sum(tally.tried for tally in tallies):,}",
        "refused": f"{sum(tally.refused for tally in tallies):,}",
        "accepted as valid": f"{sum(tally.accepted for tally in tallies):,}",
        "doors": len(tallies),
        "seconds": f"{time.monotonic() - begun:.0f}",
    }
    return Verdict("fuzz", counts, tuple(failures))
