"""The page of a rehearsal: what to take, gains with their intervals, tables, and why not the
others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from holdfast import __version__
from holdfast.report.page import render, static, table_html
from holdfast.results.table import Table

# Of the chart, whose names stand beside it.
WIDTH = 600


@dataclass(frozen=True)
class Gain:
    """A method's gain over frozen, with half of its interval."""

    method: str
    mean: float
    margin: float


def page(
    sentence: str,
    gains: Sequence[Gain],
    tables: Sequence[Table],
    ruled_out: Mapping[str, str],
    note: str,
) -> str:
    """One HTML file that needs no other, and runs no script."""
    low = min((gain.mean - gain.margin for gain in gains), default=0.0)
    high = max((gain.mean + gain.margin for gain in gains), default=0.0)
    low, high = min(low, 0.0) - 1, max(high, 0.0) + 1

    def x(points: float) -> float:
        return round(WIDTH * (points - low) / (high - low), 1)

    rows = [
        (gain.method, x(gain.mean - gain.margin), x(gain.mean), x(gain.mean + gain.margin))
        for gain in gains
    ]
    html = render(
        "rehearsal.html",
        sentence=sentence,
        rows=rows,
        zero=x(0),
        width=WIDTH,
        tables=[table_html(table, {}) for table in tables],
        ruled_out=ruled_out,
        note=note,
        style_sheet=static("page.css"),
        version=__version__,
        made_at=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )
    return str(html)
