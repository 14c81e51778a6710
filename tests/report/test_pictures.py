"""The same charts as pictures."""

import io

import numpy as np
from made import make_run
from PIL import Image

from holdfast.report.gather import gather
from holdfast.report.page import Report
from holdfast.report.pictures import self_contained, write_pictures


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


def test_a_picture_holds_its_data_and_names_the_methods_it_shows(report):
    found = {
        figure.id: self_contained(figure, report.labels)
        for each in report.sections(legend=True)
        for section in each
        for figure in section.figures
    }
    gap = found["gap"]
    assert {row["method"] for row in gap["datasets"]["geometry"]} == {"eata", "eata+debias"}
    legends = [
        layer["encoding"]["color"]["legend"]
        for layer in gap["layer"]
        if "color" in layer["encoding"]
    ]
    assert all(legend["values"] == ["eata", "eata+debias"] for legend in legends)
    assert gap["title"] == "Gap to the source" and isinstance(gap["width"], int)
