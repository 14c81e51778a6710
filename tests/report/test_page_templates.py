"""What comes from runs is text alone, wherever a page says it."""

import json

import pytest
from jinja2 import UndefinedError
from made import HOSTILE
from outline import Outline, data_of

from holdfast.report.page import as_json, breakable, render, sentence, table_html
from holdfast.results.tables import Cell, Column, Row, Table


def test_hostile_names_are_text(html):
    outline = Outline(html)
    assert outline.handlers == []
    assert HOSTILE not in html
    assert "<img" not in html[: html.index('id="data"')]
    assert "&lt;script&gt;alert(" in html
    assert HOSTILE in data_of(html)["methods"]


@pytest.mark.parametrize("text", ["</script><script>x", "<!--<script>", "a & b", "\u2028", "é"])
def test_json_cannot_leave_its_element(text):
    written = as_json({"x": text})
    assert json.loads(written) == {"x": text}
    assert not set("<>&\u2028") & set(written)


@pytest.mark.parametrize("make", [breakable, sentence])
def test_names_within_texts_may_be_broken_and_are_escaped(make):
    text = make(f"eata+debias(alpha=0.9) beats {HOSTILE} by 5 % (a & b)")
    assert "debias(<wbr>alpha=0.9)" in text
    assert HOSTILE not in text and "&lt;script&gt;" in text
    assert "a &amp; b" in text


def test_every_text_of_a_table_is_escaped():
    row = Row(HOSTILE, (Cell(HOSTILE, "best", HOSTILE),), HOSTILE, badges=(HOSTILE,))
    table = Table(HOSTILE, HOSTILE, (Column(HOSTILE, HOSTILE),), (row,))
    html = table_html(table, {HOSTILE: 0})
    assert "<script" not in html
    # Caption twice, as it is also what the box is called; corner, heading, label, cell and badge
    # once each, and what hovering shows twice.
    assert html.count("alert(") == 9
    assert Outline(html).handlers == []


def test_a_name_that_a_template_is_not_given_is_an_error():
    with pytest.raises(UndefinedError, match="tables"):
        render("table.html")


def test_a_page_is_plain_text(html):
    """What is put into `Markup` later would be escaped."""
    assert type(html) is str
