"""The version is the same wherever it is written."""

import re
from pathlib import Path

import holdfast

ROOT = Path(__file__).parent.parent


def test_the_citation_and_the_changelog_are_of_this_version():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.MULTILINE) == [holdfast.__version__]
    assert re.findall(r"^## ([\d.]+)$", changes, re.MULTILINE)[0] == holdfast.__version__
