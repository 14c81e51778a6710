"""The site: what is made of the registry, and that it builds, offline, without a warning."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import ClassVar

import pytest
from code_blocks import ROOT
from site_pages import add_others, as_fields, link_rows, method_page, pages, stream_page
from toy_methods import TOYS

import holdfast
from holdfast.data.streams import kinds
from holdfast.explain.card import card, write
from holdfast.parts import Term
from holdfast.recipes.compose import PRESETS


def test_every_method_and_stream_has_a_page():
    made = pages()
    assert {f"methods/{name}.md" for name in holdfast.methods()} < made.keys()
    assert {f"streams/{name}.md" for name in kinds()} < made.keys()
    assert f"| `{Term.__name__}` | class |" in made["parts.md"]


def test_a_page_says_what_the_card_says():
    page, part = method_page("eata"), card("eata").parts[0]
    assert part.equation in page and card("eata").memory in page
    for entry in part.settings:
        assert f"| `{entry.name}` | `{write(entry.value)}` |" in page
        assert entry.meaning.replace("<", r"\<").replace("|", r"\|") in page
    for preset in PRESETS:
        values = {entry.name: entry.value for entry in card("eata", preset).parts[0].settings}
        assert f"`{values['redundancy']}`" in page


def test_a_plug_in_that_needs_a_host_is_shown_on_one():
    page = method_page("prior")
    assert 'holdfast.adapt(model, "tent+prior")' in page and "`tent+prior`" in page
    assert "`lr`" not in page  # which is its host's


@pytest.mark.usefixtures("toy_methods")
def test_a_new_method_gets_its_page_by_itself():
    @holdfast.register("toy-bar")
    @dataclass(frozen=True)
    class Bar(TOYS["toy-centre"]):
        """Takes |x| of a_b away.

        y = x · |x|
        """

        paper: ClassVar[str] = "nobody, *never*"

    page = pages()["methods/toy-bar.md"]
    assert r"Takes \|x\| of a\_b away." in page and r"nobody, \*never\*" in page
    assert "```text\ny = x · |x|\n```" in page


def test_a_streams_page_has_its_settings_and_sources():
    page = stream_page("correlated")
    assert "| `gamma` | `0.1` |" in page and "RoTTA" in page


class App:
    srcdir = ROOT / "docs"


def test_rows_lead_to_pages_and_new_pages_are_found(tmp_path):
    text = ["| `tent` | host |\n| `x` is not first | `tent` |"]
    link_rows(App, "methods", text)
    assert text[0].startswith("| [`tent`](methods/tent.md) | host |")
    app = App()
    app.srcdir = tmp_path
    for name in ("index", "start", "production", "exports"):
        (tmp_path / f"{name}.md").write_text("")
    front = ["start\nproduction\nhealth\n"]
    add_others(app, "index", front)
    assert front[0] == "start\nproduction\nexports\nhealth\n"


def test_arguments_in_docstrings_become_fields():
    lines = ["Does it.", "", "a: one,", "    and more.", "b, c: two", "goes on.", "", "In the: end"]
    found = as_fields(lines)
    assert found[2:7] == [":a: one,", "      and more.", ":b, c: two", "  goes on.", ""]
    assert as_fields(["Words: that go on", "here.", "", "x"])[0] == ":Words: that go on"


class Asked(HTMLParser):
    """What a page asks for as it opens."""

    def __init__(self):
        super().__init__()
        self.places: list[str] = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag in ("script", "img", "iframe", "source", "video", "object"):
            self.places.append(given.get("src") or given.get("data") or "")
        if tag == "link" and given.get("rel") not in ("canonical", "author"):
            self.places.append(given.get("href") or "")


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_no_network(tmp_path):
    pytest.importorskip("sphinx", reason="sphinx is not installed: `make docs` brings it")
    pytest.importorskip("furo", reason="furo is not installed: `make docs` brings it")
    source, site = tmp_path / "docs", tmp_path / "site"
    shutil.copytree(ROOT / "docs", source)
    shutil.copy(ROOT / "CHANGELOG.md", tmp_path)
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet"]
    command = [sys.executable, "-m", "sphinx", *strict, "-b", "html", str(source), str(site)]
    # A proxy that does not answer: what asks the network fails.
    offline = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(command, env={**os.environ, **offline}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for name in holdfast.methods():
        assert (site / "methods" / f"{name}.html").exists()
    found = sorted(site.rglob("*.html"))
    assert len(found) > 60
    for page in found:
        asked = Asked()
        asked.feed(page.read_text("utf-8"))
        assert asked.places and not [one for one in asked.places if re.match(r"\w*:?//", one)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?\w*:?//|@import", style.read_text("utf-8")), style
    slots = (site / "concepts.html").read_text("utf-8")
    assert "slots.svg" in slots and "Every kind" in (site / "streams.html").read_text("utf-8")
