"""Which charts a page has, and what is said of them."""

import json
import re

import altair as alt
import pytest
from jsonschema import ValidationError
from made import make_run
from outline import data_of

from holdfast.report.page import Report, page
from holdfast.results.gather import gather


def test_every_figure_of_the_paper_is_there(html):
    charts = data_of(html)["charts"]
    expected = {
        *("stream", "ranks", "ranks-0", "bias-by-domain", "histogram", "reliability", "ece"),
        *("entropy-by-confidence", "entropy-by-domain", "time-by-domain", "sweep-0"),
        *("gap", "intra", "inter", "ratio", "similarity-source", "similarity-target"),
    }
    assert expected <= set(charts)
    for one in charts.values():
        assert any(param["name"] == "shown" for param in one["spec"]["params"])
        assert "indexof(shown" in json.dumps(one["spec"])


def test_estimates_are_drawn_where_there_are_some(tmp_path):
    def told(number):
        estimated = {"estimated": 0.5, "estimated_low": 0.4, "estimated_high": 0.7}
        return {**estimated, "alarm": number > 3, "fallback": number > 5}

    make_run(tmp_path, "bn")
    without = Report(gather(tmp_path))
    assert "estimates" not in data_of(page(without))["charts"]
    assert "How good estimates are" not in page(without)
    make_run(tmp_path, "tent", rows={"told": told})
    report = Report(gather(tmp_path))
    (figure,) = [
        one for part in report.sections[0] for one in part.figures if one.id == "estimates"
    ]
    alt.LayerChart.from_dict(figure.spec)
    parts = [figure.spec, *figure.spec["layer"]]
    asked = {one["data"]["name"] for one in parts if "name" in one.get("data", {})}
    assert asked == set(figure.tables) >= {"estimates", "estimates-alarms", "fallbacks"}
    assert "A triangle marks" in figure.caption
    assert "the source model answered" in figure.caption
    html = page(report)
    assert "How good estimates are" in html
    assert "rang for tent (first at batch 4)" in html


def test_sweeps_come_before_all_other_charts(report, tmp_path):
    """Who varied a setting asked what it does."""
    assert [one.id for one in report.sections[0]][:2] == ["sweeps", "stream"]
    make_run(tmp_path)
    assert Report(gather(tmp_path)).sections[0][0].id == "stream"


def test_charts_are_what_vega_lite_knows(report):
    (sections,) = report.sections
    assert len(sections) == 7
    for figure in (figure for section in sections for figure in section.figures):
        alt.LayerChart.from_dict(figure.spec)  # checks it against the schema
    layer = {"mark": "line", "encoding": {"x": {"field": "x", "type": "sideways"}}}
    with pytest.raises(ValidationError, match="sideways"):
        alt.LayerChart.from_dict({**figure.spec, "layer": [layer]})


@pytest.mark.parametrize("severities", [(5,), (5, 3)])
def test_charts_ask_for_no_data_but_their_own(tmp_path, severities):
    """Also where they have a prefix, as with two comparisons."""
    for severity in severities:
        make_run(tmp_path, "eata", 50, severity=severity, analysis=True)
        make_run(tmp_path, "eata+debias(alpha=0.9)", severity=severity)
        make_run(tmp_path, "eata+debias(alpha=0.99)", severity=severity)
    report = Report(gather(tmp_path))
    for prefix, part in zip(report.prefixes, report.sections, strict=True):
        for figure in (figure for section in part for figure in section.figures):
            parts = [figure.spec, *figure.spec["layer"]]
            asked = {one["data"]["name"] for one in parts if "name" in one.get("data", {})}
            assert asked == set(figure.tables), figure.id
            assert all(name.startswith(prefix) for name in (figure.id, *asked))


def test_a_chart_of_learning_rates_says_that_labels_tell_which_is_best(tmp_path):
    for rate in (0.1, 0.2):
        make_run(tmp_path, f"tent(lr={rate})")
        make_run(tmp_path, f"tent+debias(alpha={1 - rate})")
    captions = {
        one.title: one.caption
        for part in Report(gather(tmp_path)).sections[0]
        for one in part.figures
        if "sweep" in one.id
    }
    known = {title: "known from labels alone" in text for title, text in captions.items()}
    assert known == {
        "Accuracy along learning rate of tent": True,
        "Accuracy along α of debias": False,
    }


def stream_caption(path):
    report = Report(gather(path))
    (one,) = (one for part in report.sections[0] for one in part.figures if one.id == "stream")
    return one.caption


def test_the_stream_says_what_its_points_are_of(tmp_path):
    for order, names in enumerate((("fog", "snow"), ("snow", "fog"))):
        stream = f"continual(order=random,order_seed={order})"
        make_run(tmp_path / "orders", "eata", dict.fromkeys(names, 50), stream=stream)
        make_run(tmp_path / "seeds", "eata", {"fog": 50, "snow": 50}, seed=order)
    assert stream_caption(tmp_path / "seeds") == (
        "Each point is of a few batches of one domain, mean over seeds; upright lines stand where "
        "a domain begins."
    )
    assert stream_caption(tmp_path / "orders") == (
        "Each point is of a few batches, mean over orders: domains differ at each point, so no "
        "line stands between them."
    )
    make_run(tmp_path / "mixed", "eata", {"mixed": 50}, stream="mixed")
    assert stream_caption(tmp_path / "mixed") == "Each point is of a few batches, mean over seeds."


def test_a_page_says_which_lines_coincide(tmp_path):
    make_run(tmp_path, "bn", 50)
    make_run(tmp_path, "tent", 50, started=1)
    make_run(tmp_path, "eata", 70, started=2)
    text = page(Report(gather(tmp_path)))
    (caption,) = re.findall(r"<h4>Accuracy as images come</h4><figcaption>(.*?)</figcaption>", text)
    assert caption.endswith("The lines of bn and tent coincide.")
