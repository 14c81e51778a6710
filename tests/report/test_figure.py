"""Lines that lie on each other are said to, and no others."""

import polars as pl
import pytest

from holdfast.report.figure import Figure


def figure(lines):
    """`lines`: heights by method, one after the other from 0 on."""
    encoding = {
        "x": {"field": "seen"},
        "y": {"field": "accuracy"},
        "strokeDash": {"field": "method"},
    }
    layer = {"mark": {"type": "line"}, "data": {"name": "it"}, "encoding": encoding}
    rows = [
        {"method": method, "seen": place, "accuracy": height}
        for method, heights in lines.items()
        for place, height in enumerate(heights)
    ]
    return Figure("it", "", "", {"layer": [layer]}, {"it": pl.DataFrame(rows)})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ({"bn": [0.0, 50], "eata": [0.0, 100]}, ""),
        # One point of two is enough to see both.
        ({"bn": [0.0, 50], "eata": [0.0, 52]}, ""),
        ({"bn": [0.0, 50], "eata": [0.0, 50]}, "The lines of bn and eata coincide."),
        # Closer than a line is thick.
        (
            {"frozen": [0.0, 100], "bn": [0.0, 50], "eata": [0.0, 50.4]},
            "The lines of bn and eata coincide.",
        ),
        (
            {"a": [1.0, 2], "b": [5.0, 5], "c": [1.0, 2], "d": [5.0, 5], "e": [5.0, 5]},
            "The lines of a and c coincide, and so do those of b, d and e.",
        ),
        # One goes on, and has so far been like the other.
        ({"bn": [0.0], "eata": [0.0, 50]}, "The lines of bn and eata coincide."),
        ({"bn": [0.0, None], "eata": [0.0, 50]}, ""),
        ({"bn": [None, None], "eata": [None, None]}, ""),
    ],
)
def test_lines_that_coincide_are_named(lines, said):
    assert figure(lines).note == said
