"""The page's templates: what goes into them is escaped, unless it is `Markup` already."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from holdfast.report.palette import style
from holdfast.results.table import Table

# At 1280 px, in a wide font: the room that columns have beside the names of rows, where they are
# dense, and where a table is folded and has to fit whatever its signs are.
ROOM, DENSE_ROOM, FOLDED_ROOM = 960, 1040, 880
# What a screen reader says of marks.
SPOKEN = {"best": "best", "second": "second best"}


def render(template: str, **values: object) -> Markup:
    return Markup(_TEMPLATES.get_template(template).render(values))


def breakable(text: str) -> Markup:
    """A method's name, which may be broken after its punctuation."""
    return Markup(re.sub(r"([,+(])", r"\1<wbr>", str(escape(text))))


def sentence(text: str) -> Markup:
    """Numbers are not torn from what follows them, nor methods' names unless they are longer than
    a line; commas stay with what they follow."""
    bound = re.sub(r"(?<=\d) (?=[%±])|(?<=±) (?=\d)", "\u00a0", text)
    return Markup(
        re.sub(
            r"[^\s(]+\([^\s()]*\)(?:\+[\w-]+(?:\([^\s()]*\))?)*[,.:]?",
            lambda name: f'<span class="name">{breakable(Markup(name[0]))}</span>',
            str(escape(bound)),
        )
    )


def as_json(value: object) -> Markup:
    """Safe within a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def table_html(table: Table, places: Mapping[str, int]) -> Markup:
    """Its columns closer to each other where they are many, and as several tables where one would
    be wider than the page. `places`: of methods in the legend, by label."""
    signs = table.signs()
    dense = sum(17.6 + 8.1 * count for count in signs) > ROOM
    widths = [8.3 + 7.2 * count for count in signs]
    too_wide = dense and sum(widths) > DENSE_ROOM
    tables = table.fold(widths, FOLDED_ROOM) if too_wide else [table]
    return render("table.html", tables=tables, dense=dense, places=places, spoken=SPOKEN)


_TEMPLATES = Environment(
    loader=PackageLoader("holdfast.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_TEMPLATES.filters |= {"breakable": breakable, "sentence": sentence}
_TEMPLATES.globals["style"] = style
