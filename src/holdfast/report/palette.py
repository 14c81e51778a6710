"""One look for each method, the same in every chart: a colour, a dash and a shape.

Colours are those of Okabe and Ito, which people who see colours differently can tell apart too, but
for yellow, which cannot be read on white, and black, which cannot on black and is grey here.
"""

from __future__ import annotations

from dataclasses import dataclass

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7f7f7f", "#e69f00", "#56b4e9")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")


@dataclass(frozen=True)
class Look:
    """How a method is drawn."""

    colour: str
    dash: tuple[int, ...]
    shape: str


def look(place: int) -> Look:
    """Of the method at that place; after seven, dashes tell those of one colour apart."""
    turn, colour = divmod(place, len(COLOURS))
    return Look(
        COLOURS[colour],
        DASHES[turn % len(DASHES)],
        SHAPES[(colour + turn) % len(SHAPES)],
    )
