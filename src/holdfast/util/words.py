"""Small helpers for texts that people read."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def nearest(word: str, valid: Iterable[str]) -> str:
    """' Did you mean X?', or nothing where no valid word is close."""
    close = difflib.get_close_matches(word.lower(), list(valid), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""


def listed(words: Iterable[object], most: int = 12) -> str:
    """'a, b, c', cut with '…' where there are many."""
    texts = [str(word) for word in words]
    return ", ".join(texts[:most]) + (", …" if len(texts) > most else "")


def enumerated(words: Sequence[str]) -> str:
    """'a, b and c'."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def first_line(error: BaseException) -> str:
    """The first line of its message, to be put in brackets; its type where there is no message."""
    return str(error).strip().partition("\n")[0][:160].rstrip(".:") or type(error).__name__


def shortened(text: str, most: int = 200) -> str:
    """A text as an error can show it."""
    return text if len(text) <= most else f"{text[:most]}…"
