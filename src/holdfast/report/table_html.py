"""A table as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from holdfast.report.markup import render
from holdfast.results.table import Table

# At 1280 px, in a wide font: the room that columns have beside the names of rows, and what one
# takes with so many signs.
ROOM, DENSE_ROOM = 960, 1040
# What is folded has to fit whatever its signs are; these are those of domains and numbers.
FOLDED_ROOM = 880
# What a screen reader says of marks.
SPOKEN = {"best": "best", "second": "second best"}


def table_html(table: Table, places: Mapping[str, int]) -> Markup:
    """Its columns closer to each other where they are many, and as several tables where one would
    be wider than the page. `places`: of methods in the legend, by label."""
    signs = table.signs()
    dense = sum(map(_width, signs)) > ROOM
    too_wide = dense and sum(map(_dense_width, signs)) > DENSE_ROOM
    tables = table.fold([*map(_dense_width, signs)], FOLDED_ROOM) if too_wide else [table]
    return render("table.html", tables=tables, dense=dense, places=places, spoken=SPOKEN)


def _width(signs: int) -> float:
    return 17.6 + 8.1 * signs


def _dense_width(signs: int) -> float:
    return 8.3 + 7.2 * signs
