"""Each method has a style of its own."""

from holdfast.report.charts import style
from holdfast.report.page import Report
from holdfast.results.gather import gather


def test_styles_are_all_different():
    styles = [style(place) for place in range(28)]
    assert len({(one.colour, one.dash) for one in styles}) == 28
    assert all(one.dash == (1, 0) for one in styles[:7])


def test_a_method_looks_the_same_on_a_page_with_fewer(runs, report, tmp_path):
    """A later method does not change the looks of those before it."""
    for folder in sorted(runs.iterdir()):
        if folder.name.startswith(("frozen", "eata-")):
            (tmp_path / folder.name).symlink_to(folder)
    fewer = Report(gather(tmp_path))
    assert report.labels[: len(fewer.labels)] == fewer.labels == ("frozen", "eata")
