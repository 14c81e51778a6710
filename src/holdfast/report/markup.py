"""HTML of the page's parts. Whatever comes from a run goes through `escape`."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.bench.sweep import CHOSEN
from holdfast.report.figure import Figure, Section
from holdfast.report.palette import look
from holdfast.results.acting import IDLE, MARK
from holdfast.results.tables import Cell, Row, Table

# At 1280 px, in a wide font: the room that columns have beside the names of rows, and what one
# takes with so many signs.
ROOM, DENSE_ROOM = 960, 1040
# What is folded has to fit whatever its signs are; these are those of domains and numbers.
FOLDED_ROOM = 880
MARKS = {"best": "best", "second": "second best"}
# In the legend, by what is remarked of a method.
SIGNS = {CHOSEN: "†", IDLE: MARK}

# Paths of the shapes that Vega draws, around (15, 6).
SHAPES = {
    "circle": "M15 2.5a3.5 3.5 0 1 0 .01 0Z",
    "square": "M11.8 2.8h6.4v6.4h-6.4Z",
    "triangle-up": "M15 1.8l4 7.4h-8Z",
    "triangle-down": "M15 10.2l4-7.4h-8Z",
    "triangle-right": "M19.2 6l-7.4 4v-8Z",
    "diamond": "M15 1.2l3.4 4.8-3.4 4.8-3.4-4.8Z",
    "cross": "M13.6 2h2.8v2.6H19v2.8h-2.6V10h-2.8V7.4H11V4.6h2.6Z",
}


def escape(text: object) -> str:
    return html.escape(str(text), quote=True)


def named(label: str) -> str:
    """A method's name, which may be broken after its punctuation."""
    return _breakable(escape(label))


def said(text: str) -> str:
    """A sentence in which numbers are not torn from what follows them, nor methods' names unless
    they are longer than a line; commas stay with what they follow."""
    bound = escape(re.sub(r"(?<=\d) (?=[%±])|(?<=±) (?=\d)", "\u00a0", text))
    return re.sub(
        r"[^\s(]+\([^\s()]*\)(?:\+[\w-]+(?:\([^\s()]*\))?)*[,.:]?",
        lambda name: f'<span class="name">{_breakable(name[0])}</span>',
        bound,
    )


def _breakable(escaped: str) -> str:
    return re.sub(r"([,+(])", r"\1<wbr>", escaped)


def as_json(what: object) -> str:
    """Safe within a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(what, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def swatch(place: int) -> str:
    one = look(place)
    dash = " ".join(map(str, one.dash))
    return (
        f'<svg class="swatch" viewBox="0 0 30 12" aria-hidden="true"><path d="M0 6h30" '
        f'stroke="{one.colour}" stroke-width="2.5" stroke-dasharray="{dash}"/>'
        f'<path d="{SHAPES[one.shape]}" fill="{one.colour}"/></svg>'
    )


def legend(labels: Sequence[str], parts: Sequence[Mapping[str, Sequence[str]]]) -> str:
    """Check boxes; the script has them filter every chart. What is remarked of methods, by label in
    each part of the page, is marked, and said once."""
    some = " in some part" if len(parts) > 1 else ""
    told = {
        label: [one for one in SIGNS if any(one in part.get(label, ()) for part in parts)]
        for label in labels
    }
    boxes = "".join(_box(place, label, told[label], some) for place, label in enumerate(labels))
    for remark, sign in SIGNS.items():
        if any(remark in each for each in told.values()):
            boxes += f'<span class="remark" aria-hidden="true">{sign} {remark}{some}</span>'
    buttons = "".join(
        f'<button type="button" data-do="{name.lower()}">{name}</button>'
        for name in ("All", "None")
    )
    return (
        '<fieldset class="legend"><legend class="hidden">Methods that charts show</legend>'
        '<div class="methods"><span class="hint" aria-hidden="true">Show</span>'
        f'{boxes}<span class="both">{buttons}</span></div></fieldset>'
    )


def _box(place: int, label: str, remarks: Sequence[str], some: str) -> str:
    title = escape(", ".join([label, *(one + some for one in remarks)]))
    marks = "".join(
        f'<span class="remark" aria-hidden="true">{SIGNS[one]}</span>'
        f'<span class="hidden">, {one}{some}</span>'
        for one in remarks
    )
    return (
        f'<label title="{title}"><input type="checkbox" value="{place}" checked> '
        f"{swatch(place)} <span>{escape(label)}</span>{marks}</label>"
    )


# Tables.


def scrolled(inner: str, name: str) -> str:
    """A box that scrolls by itself, also by keyboard."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(name)}">{inner}</div>'
    )


def table(what: Table, places: Mapping[str, int]) -> str:
    """Its columns closer to each other where they are many, and as several tables where one would
    be wider than the page."""
    if sum(map(_width, what.signs())) <= ROOM:
        return _table(what, places)
    fits = sum(map(_dense_width, what.signs())) <= DENSE_ROOM
    folded = [what] if fits else what.fold(_dense_width, FOLDED_ROOM)
    return "".join(_table(one, places, ' class="dense"') for one in folded)


def _width(signs: int) -> float:
    return 17.6 + 8.1 * signs


def _dense_width(signs: int) -> float:
    return 8.3 + 7.2 * signs


def _table(what: Table, places: Mapping[str, int], dense: str = "") -> str:
    heads = "".join(
        f'<th scope="col">{_abbreviated(one.text, one.full)}</th>' for one in what.columns
    )
    rows = "".join(_row(row, places) for row in what.rows)
    return scrolled(
        f"<table{dense}><caption><span>{escape(what.caption)}</span></caption><thead><tr>"
        f'<th scope="col">{escape(what.corner)}</th>{heads}</tr></thead><tbody>{rows}</tbody>'
        "</table>",
        what.caption,
    )


def _abbreviated(text: str, full: str) -> str:
    return f'<abbr title="{escape(full)}">{escape(text)}</abbr>' if full else escape(text)


def _row(row: Row, places: Mapping[str, int]) -> str:
    place = places.get(row.method or "")
    of = "" if place is None else f' data-method="{place}"'
    look_of = "" if place is None or row.published else swatch(place) + " "
    marks = "".join(f' <span class="badge">{escape(one)}</span>' for one in row.badges)
    kind = ' class="published"' if row.published else ""
    cells = "".join(map(_cell, row.cells))
    return f'<tr{of}{kind}><th scope="row">{look_of}{named(row.label)}{marks}</th>{cells}</tr>'


def _cell(cell: Cell) -> str:
    title = f' title="{escape(cell.title)}"' if cell.title else ""
    if not cell.mark:
        return f"<td{title}>{escape(cell.text)}</td>"
    spoken = f'<span class="hidden"> {MARKS[cell.mark]}</span>'
    return f'<td class="{cell.mark}"{title}>{escape(cell.text)}{spoken}</td>'


def pairs(caption: str, named: Mapping[str, object]) -> str:
    """A table of names and what they stand for."""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="text">{escape(what)}</td></tr>'
        for name, what in named.items()
    )
    return scrolled(
        f"<table><caption><span>{escape(caption)}</span></caption><tbody>{rows}</tbody></table>",
        caption,
    )


# Charts.


def section(what: Section, after: str = "") -> str:
    charts = "".join(map(_figure, what.figures))
    grid = "grid small" if what.figures[0].size == "small" else "grid"
    about = f'<p class="about">{escape(what.about)}</p>' if what.about else ""
    return (
        f'<section aria-labelledby="{what.id}-h"><h3 id="{what.id}-h">{escape(what.title)}</h3>'
        f'{about}<div class="{grid}">{charts}</div>{after}</section>'
    )


def _figure(one: Figure) -> str:
    name, title = escape(one.id), escape(one.title)
    said_of_it = " ".join(filter(None, (one.caption, one.note)))
    caption = f"<figcaption>{escape(said_of_it)}</figcaption>" if said_of_it else ""
    numbers = (
        ""
        if one.size == "small"
        else f'<details class="numbers" id="{name}-numbers" data-numbers="{name}" '
        f'data-title="{title}"><summary>Numbers</summary><div class="scroll" tabindex="0" '
        f'role="region" aria-label="{title}, numbers"></div></details>'
    )
    spoken = escape(f"Chart: {one.title}. {said_of_it}")
    chart = f'<div class="chart" data-chart="{name}" role="img" aria-label="{spoken}"></div>'
    # Small charts stand beside each other, and begin at one height.
    parts = chart + caption if one.size == "small" else caption + chart
    return f'<figure class="{one.size}"><h4>{title}</h4>{parts}{numbers}</figure>'


def chart_json(one: Figure) -> dict[str, Any]:
    return {"spec": one.spec, "tables": list(one.tables)}
