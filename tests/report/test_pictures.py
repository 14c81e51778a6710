"""The same charts as pictures."""

import io

import numpy as np
import vl_convert
from made import make_run
from PIL import Image

from holdfast.report.page import Report
from holdfast.report.pictures import self_contained, write_pictures
from holdfast.results.gather import gather


def test_pictures_are_drawn_in_the_methods_colours(tmp_path):
    make_run(tmp_path / "runs", "eata", {"fog": 40})
    make_run(tmp_path / "runs", "tent", {"fog": 60}, started=1)
    written = write_pictures(Report(gather(tmp_path / "runs")), tmp_path / "png")
    names = {path.name for path in written}
    assert {"stream.png", "ranks.png", "reliability.png", "ece.png"} <= names
    assert {path.name for path in (tmp_path / "png").iterdir()} == names
    picture = np.array(Image.open(io.BytesIO((tmp_path / "png/stream.png").read_bytes())))
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
        assert (np.abs(picture[..., :3].astype(int) - colour).max(-1) < 3).sum() > 200


def specs(report):
    return {figure.id: spec for figure, spec in self_contained(report)}


def legends(report, name):
    return vl_convert.vegalite_to_vega(specs(report)[name])["legends"]


def test_a_legend_shows_what_tells_methods_apart(report):
    """Lines as they are dashed, or where there are points their shapes, and no other outline."""
    for name in ("stream", "ranks", "histogram"):
        (lines,) = legends(report, name)
        assert (lines["strokeDash"], lines["symbolType"]) == ("strokeDash", "stroke")
        assert "shape" not in lines
    for name in ("reliability", "bias-by-domain", "gap"):
        (points,) = legends(report, name)
        assert points["shape"] == "shape" and "strokeDash" not in points


def test_a_legend_says_what_was_chosen_with_labels(report):
    (legend,) = legends(report, "stream")
    (said,) = legend["encode"]["labels"]["update"].values()
    assert '"tent(lr=1.0)": ", chosen with labels"' in said["signal"]


def test_a_picture_holds_its_data_and_names_the_methods_it_shows(report):
    gap = specs(report)["gap"]
    assert {row["method"] for row in gap["datasets"]["geometry"]} == {"eata", "eata+debias"}
    legends = [
        layer["encoding"]["color"]["legend"]
        for layer in gap["layer"]
        if "color" in layer["encoding"]
    ]
    assert all(legend["values"] == ["eata", "eata+debias"] for legend in legends)
    assert gap["title"] == "Gap to the source" and isinstance(gap["width"], int)


def test_a_picture_says_which_lines_coincide(tmp_path):
    make_run(tmp_path, "bn", 50)
    make_run(tmp_path, "tent", 50, started=1)
    title = specs(Report(gather(tmp_path)))["stream"]["title"]
    assert title["subtitle"] == "The lines of bn and tent coincide."
