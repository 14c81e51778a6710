"""The page's templates: what goes into them is escaped, unless it is `Markup` already."""

from __future__ import annotations

import json
import re

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from holdfast.report.palette import style


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
