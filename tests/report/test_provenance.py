"""How runs were made, as the page tells it."""

import re

from made import make_run

from holdfast.report.page import Report, page
from holdfast.results.gather import gather


def test_how_it_was_run_is_there(html, report):
    stored = report.gathered.runs[0]
    assert stored.manifest.hashes["data"] in html
    assert stored.manifest.fingerprint[:16] in html
    assert "holdfast run --method &#39;eata+debias&#39;" in html


def test_random_orders_are_told_on_the_page(tmp_path):
    for order in range(2):
        make_run(tmp_path, stream=f"continual(order=random,order_seed={order})", cut=6 + 6 * order)
    text = page(Report(gather(tmp_path)))
    assert "3 domains · 240 images · 2 orders" in text
    assert "eata on glyphs-c, continual(order=random), seed 0, order 1" in text
    assert re.search(r"random orders</th><td[^>]*>0, 1<", text)


def test_what_cannot_be_read_is_told_on_the_page(html):
    assert "What could not be read" in html
    assert "is not a manifest that can be read" in html
