"""The page of a rehearsal."""

from html.parser import HTMLParser

from holdfast.report.rehearsed import WIDTH, Gain, page
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
    reader.feed(page(f"Take {EVIL}.", [Gain(EVIL, 1, 1)], [table], {EVIL: EVIL}, EVIL))
    tags = [tag for tag, _ in reader.tags]
    assert "script" not in tags and "table" in tags
    assert reader.text.count(EVIL) >= 9


def test_it_asks_nobody_for_anything():
    html = page("Keep it frozen.", [], [], {"tent": "−1.0 ± 0.5 points"}, "note")
    reader = Reader()
    reader.feed(html)
    assert not any("src" in attributes for _, attributes in reader.tags)
    assert "default-src 'none'" in html and "http:" not in html and "https:" not in html
    assert "tent: −1.0 ± 0.5 points" in reader.text


def test_gains_stand_where_they_are_and_nothing_leaves_the_chart():
    gains = [Gain("tent", -20, 3), Gain("bn", 0, 0), Gain("roid", 10, 5)]
    reader = Reader()
    reader.feed(page("Take roid.", gains, [], {}, ""))
    dots = [float(attributes["cx"]) for tag, attributes in reader.tags if tag == "circle"]
    paths = [attributes["d"] for tag, attributes in reader.tags if tag == "path"]
    zeros = {float(path[1:].partition(" ")[0]) for path in paths[::2]}
    assert zeros == {dots[1]}
    # Twice as far on the other side of zero.
    assert abs((dots[1] - dots[0]) - 2 * (dots[2] - dots[1])) < 0.3
    ends = [float(end) for path in paths[1::2] for end in path[1:].replace("8H", "").split()]
    assert all(0 <= end <= WIDTH for end in ends)
