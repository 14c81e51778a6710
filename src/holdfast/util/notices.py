"""Warnings as a person at a command line reads them: a sentence, and no line of code."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


@contextmanager
def plain_warnings() -> Iterator[None]:
    """In here, what the package itself warns of is shown so; what others do is as always."""
    usual = warnings.formatwarning

    def plain(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        line: str | None = None,
    ) -> str:
        if Path(filename).is_relative_to(PACKAGE):
            return f"holdfast: {message}\n"
        return usual(message, category, filename, lineno, line)

    warnings.formatwarning = plain
    try:
        yield
    finally:
        warnings.formatwarning = usual
