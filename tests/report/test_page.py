"""The page: its numbers are those of the store, and what comes from runs is text alone."""

import re

import pytest
from made import make_run
from outline import Outline, data_of

from holdfast.report.page import Report, page
from holdfast.results.gather import gather


def test_the_page_stands_alone_and_is_small(html):
    outline = Outline(html)
    assert all(one.startswith(("#", "data:")) for one in outline.addresses)
    assert len(html) < 2_000_000
    assert html.count("window.vegaEmbed=") == 1
    assert "default-src 'none'" in html


def test_numbers_of_the_tables_are_those_of_the_store(html, report):
    rows = {row[0].split()[0]: row for row in Outline(html).tables[0]["rows"][1:]}
    (comparison,) = report.comparisons
    assert len(rows) == len(comparison.groups)
    for group in comparison.groups:
        row = rows[group.label.split()[0]]
        # After the name, two means.
        for place, domain in enumerate(comparison.domains, 3):
            stored = [
                run.manifest.metrics[f"accuracy/{domain}"] for run in group.runs if run.finished
            ]
            if stored:
                assert row[place].split()[0] == f"{sum(stored) / len(stored):.2f}"


def test_numbers_of_the_charts_are_those_of_the_store(html, report):
    data = data_of(html)
    table = data["tables"]["by-domain"]
    (comparison,) = report.comparisons
    place = data["methods"].index("eata+debias")
    (group,) = (one for one in comparison.groups if one.label == "eata+debias")
    for row, method in enumerate(table["method"]):
        if method == place:
            domain = table["domain"][row]
            stored = [one.manifest.metrics[f"bias/{domain}"] for one in group.runs]
            assert table["bias"][row] == pytest.approx(100 * sum(stored) / 2, rel=1e-5)


def test_headings_go_down_step_by_step_and_tables_say_what_they_are(html):
    outline = Outline(html)
    assert outline.headings[0] == 1 and outline.headings.count(1) == 1
    steps = zip(outline.headings, outline.headings[1:], strict=False)
    assert all(after - before <= 1 for before, after in steps)
    for table in outline.tables:
        assert table["caption"]
        assert set(table["scopes"]) <= {"col", "row"} and table["scopes"]
    assert len(outline.ids) == len(set(outline.ids))


def test_marks_do_not_hang_on_colour_alone(html):
    assert re.search(r'<td class="best"[^>]*>[^<]*<span class="hidden"> best</span>', html)
    assert re.search(r'<td class="second"[^>]*>[^<]*<span class="hidden"> second best</span>', html)
    assert '<span class="badge">chosen with labels</span>' in html
    assert "6 of 12 batches so far" in html


def test_the_legend_marks_what_was_chosen_with_labels(html):
    """Seen by its sign, and heard as words."""
    found = re.findall(r"<label title=.*?</label>", html)
    marked = [one for one in found if 'aria-hidden="true">†' in one]
    assert len(found) > 1 and len(marked) == 1
    assert 'title="tent(lr=1.0), chosen with labels"' in marked[0]
    assert '<span class="hidden">, chosen with labels</span>' in marked[0]
    assert "† chosen with labels" in html


def test_several_comparisons_have_parts_of_their_own(tmp_path):
    make_run(tmp_path, "eata")
    make_run(tmp_path, "eata+debias", started=1)
    make_run(tmp_path, "eata", severity=3, started=2)
    text = page(Report(gather(tmp_path)))
    outline = Outline(text)
    assert len(outline.ids) == len(set(outline.ids))
    assert data_of(text)["methods"] == ["eata", "eata+debias"]
    assert {"c0-stream", "c1-stream"} <= set(data_of(text)["charts"])
    assert "On glyphs-c, " in text


def test_a_folder_of_nothing_but_rubbish_is_still_a_page(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "manifest.json").write_text("")
    text = page(Report(gather(tmp_path)))
    assert "There is no run to show yet." in text
    assert "not a manifest that can be read" in text
    assert Outline(text).headings == [1, 2]


def test_a_run_without_any_row_is_a_page(tmp_path):
    make_run(tmp_path, cut=0)
    text = page(Report(gather(tmp_path)), every=2)
    assert "No batch of these runs has been written down yet." in text
    assert 'data-every="2"' in text


@pytest.mark.parametrize(
    "stream",
    ["mixed", "recurring(visits=2)", "correlated(gamma=0.1)"],
)
def test_other_streams_have_pages_too(tmp_path, stream):
    make_run(tmp_path, stream=stream)
    assert "is 60.0 % accurate" in page(Report(gather(tmp_path)))


# Several streams.

STREAMS = ("continual", "mixed(limit=60)", "correlated(gamma=0.1)")


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """debias is the best on two streams, on the third it hardly acted; one run goes on."""
    path = tmp_path_factory.mktemp("several")
    for number, stream in enumerate(STREAMS):
        idle = {"every": 30, "time": 0.05} if stream == "continual" else {}
        accuracy = {"frozen": {"fog": 20, "snow": 20, "original": 95}, "bn": 50, "debias": 60}
        for place, (method, percent) in enumerate(accuracy.items()):
            given = {"batches": 40, "size": 10, "started": 3 * number + place, "stream": stream}
            rows = idle if method == "debias" else {}
            make_run(path, method, percent, rows=rows, **given)
    make_run(path, "tent", 40, stream="mixed(limit=60)", batches=40, size=10, cut=30, started=9)
    return Report(gather(path))


def test_with_several_streams_the_headline_speaks_of_each(several):
    text = page(several)
    (title,) = re.findall(r"<h1>(.*?)</h1>", text)
    best = "debias is the most accurate on mixed (so far) and correlated; bn on continual."
    assert title == f"On glyphs-c: {best}"
    items = re.findall(r'<li><a href="#(c\d-part)">(.*?)</a>: (.*?)</li>', text)
    assert [name for _, name, _ in items] == ["mixed", "continual", "correlated"]
    assert all(f'id="{part}"' in text for part, _, _ in items)
    said = {name: sentences for _, name, sentences in items}
    assert said["continual"].startswith("bn is 5.0 points more accurate than frozen")
    assert "debias (4 steps of 120) hardly acted" in said["continual"]
    assert all("on clean images (original)" in one.lower() for one in said.values())


def test_a_run_that_goes_on_says_on_which_stream(several):
    assert "tent on glyphs-c, mixed(limit=60), seed 0" in page(several)


def test_a_method_that_hardly_acted_is_marked_and_what_that_means_is_said(several):
    text = page(several)
    rows = [row for table in Outline(text).tables for row in table["rows"] if row]
    marked = [row[0].strip() for row in rows if "hardly acted" in row[0]]
    # In the tables of accuracies and of figures of that stream, and of no other.
    assert marked == ["debias hardly acted: 4 steps of 120"] * 2
    assert text.count("Hardly acted: took fewer than 5 % of 100 or more steps") == 1
    (box,) = re.findall(r'<label title="debias, hardly acted in some part">.*?</label>', text)
    assert "‡" in box and "‡ hardly acted in some part" in text


def test_one_stream_has_its_sentences_in_the_headline(tmp_path):
    make_run(tmp_path, "frozen", {"fog": 20, "original": 95})
    make_run(tmp_path, "bn", {"fog": 50, "original": 90})
    make_run(tmp_path, "eata", {"fog": 60, "original": 90})
    text = page(Report(gather(tmp_path)))
    (title,) = re.findall(r"<h1>(.*?)</h1>", text)
    assert title.startswith(
        "eata is the most accurate of 3 methods, at 75.0\u00a0%: 5.0 points above bn"
    )
    assert "every method is less accurate than frozen there, by 5.0 points" in title
    assert f"<title>holdfast: {Report(gather(tmp_path)).sentences[0]}</title>" in text


def test_accuracy_by_visit_is_shown_where_domains_come_again(tmp_path):
    make_run(tmp_path / "once", "tent")
    make_run(tmp_path / "again", "tent", rows={"visits": 2})
    assert "By visit" not in page(Report(gather(tmp_path / "once")))
    assert "By visit" in page(Report(gather(tmp_path / "again")))
