"""The page of a rehearsal."""

from html.parser import HTMLParser

from holdfast.report.rehearsed import page
from holdfast.results.table import Cell, Column, Row, Table

EVIL = "<script>alert('x')</script>&amp;"


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_whatever_a_method_is_called_is_shown_and_not_run():
    table = Table(EVIL, EVIL, (Column(EVIL, EVIL),), (Row(EVIL, (Cell(EVIL, title=EVIL),)),))
    reader = Reader()
    reader.feed(page(f"Take {EVIL}.", [table], {EVIL: EVIL}, EVIL))
    tags = [tag for tag, _ in reader.tags]
    assert "script" not in tags and "table" in tags
    assert reader.text.count(EVIL) >= 8


def test_it_asks_nobody_for_anything():
    html = page("Keep it frozen.", [], {"tent": "−1.0 ± 0.5 points"}, "note")
    reader = Reader()
    reader.feed(html)
    assert not any("src" in attributes for _, attributes in reader.tags)
    assert "default-src 'none'" in html and "http:" not in html and "https:" not in html
    assert "tent: −1.0 ± 0.5 points" in reader.text
