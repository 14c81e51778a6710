"""The page of a rehearsal: what to take, the tables, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from holdfast import __version__
from holdfast.report.page import render, static, table_html
from holdfast.results.table import Table


def page(sentence: str, tables: Sequence[Table], ruled_out: Mapping[str, str], note: str) -> str:
    """One HTML file that needs no other, and runs no script."""
    html = render(
        "rehearsal.html",
        sentence=sentence,
        tables=[table_html(table, {}) for table in tables],
        ruled_out=ruled_out,
        note=note,
        style_sheet=static("page.css"),
        version=__version__,
        made_at=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )
    return str(html)
