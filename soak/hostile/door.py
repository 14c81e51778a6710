"""Where an input is tried, what may come of it, and how a good error is told from a bad one."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from hypothesis.strategies import SearchStrategy

# Raised as they are, and not as one of their kinds: a JSONDecodeError or a UnicodeDecodeError is a
# ValueError too, and tells a person nothing.
ADMITTED = (
    ValueError,
    OSError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
# What was expected, or what to do.
EXPECTS = r"expected|expects|takes|must|needs?|at least|at most|reads format|is .* not|written like"
ADVISES = (
    r"pass|use|give|choose|write|make|load|leave|divide|keep|put|take|reset|raise|lower|adapt|"
    r"feed|delete|name (?:one|the)|its settings|methods:|streams:|presets:|names are"
)
HELPFUL = re.compile(rf"\b({EXPECTS}|{ADVISES})(?!\w)", re.I)
LONGEST = 1_500


class Harm(Exception):  # noqa: N818
    """An input did what no input may do; the text says what."""


class Door(ABC):
    """A place where inputs come in from outside."""

    name: str

    @abstractmethod
    def __init__(self, folder: Path):
        """Get ready, with a folder for files."""

    @abstractmethod
    def inputs(self) -> SearchStrategy[Any]:
        """What is tried."""

    @abstractmethod
    def attempt(self, given: Any) -> None:
        """Try one. An error means that it was refused; `Harm` that it should have been, or that
        what it was taken for is wrong."""

    def state(self) -> str:
        """A digest of all that a refused input may not change."""
        return ""

    def describe(self, given: Any) -> str:
        return repr(given)


def skeleton(text: str) -> str:
    """A text without what differs from input to input, so that one fault is told once."""
    return re.sub(r"/\S+|\d[\d.e+-]*|'[^']*'", "…", text)


def find_fault(error: BaseException) -> str | None:
    """What is wrong with an error as an answer to a bad input; None: nothing."""
    kind = type(error)
    ours = kind.__module__.partition(".")[0] == "holdfast" and issubclass(kind, ValueError)
    text = str(error)
    if kind not in ADMITTED and not ours:
        return f"a bare {kind.__module__}.{kind.__name__}: {text[:200]}"
    if not text.strip():
        return f"a {kind.__name__} without a word"
    if len(text) > LONGEST:
        return f"a {kind.__name__} of {len(text):,} characters: {text[:100]}…"
    if not HELPFUL.search(text):
        return f"no word of what was expected or what to do: {text[:300]}"
    return None
