"""One stream of a fleet."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from holdfast.engine.held import Held
from holdfast.engine.last import Last


@dataclass
class Seat:
    """A stream in memory: its state, what its last batch did, and notes that are saved with it.

    saved: state and notes as the stream's file has them; None: there is no file.
    """

    held: Held = field(default_factory=Held)
    last: Last = field(default_factory=Last)
    notes: dict[str, Any] = field(default_factory=dict)
    saved: tuple[Held, str] | None = None

    @property
    def is_saved(self) -> bool:
        return self.saved is not None and self.saved == (self.held, self.written_notes())

    def written_notes(self) -> str:
        """Notes as a file has them, or an error that says what is wrong with them."""
        try:
            return json.dumps(self.notes, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Notes of a stream are saved as JSON, which these cannot be ({error}): keep "
                "texts, numbers, lists and dicts of these in them."
            ) from None


def check_name(stream: object) -> None:
    if not isinstance(stream, str) or not stream:
        raise ValueError(f"A stream is named by a text that is not empty, not {stream!r}.")


def unknown(stream: str) -> ValueError:
    return ValueError(
        f"There is no stream {stream!r}: it begins with its first images, "
        f"fleet({stream!r}, images), or with add({stream!r})."
    )
