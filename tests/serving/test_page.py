"""The live page in a browser: headless Chromium, driven by playwright."""

import shutil

import pytest
from watched_page import HOSTILE, Site

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")

# Root has no sandbox, and a machine without a network should not be asked for one.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
TOKEN = "a-token-that-nobody-guesses"


@pytest.fixture(scope="module")
def chromium():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """A look at a page, and all that it said and asked for."""

    def __init__(self, browser, url, width=1280, scheme="light"):
        viewport = {"width": width, "height": 900}
        self.page = browser.new_context(viewport=viewport, color_scheme=scheme).new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda one: self.said.append(one.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda one: (self.said.append("dialog"), one.dismiss()))
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.goto(url)

    def at(self, id):
        return self.page.locator(f"#{id}")

    @property
    def names(self):
        return self.page.locator("#rows tr:not(.why) td:first-child")

    def see(self, id, text):
        # Not by a script of ours, which the page's policy would not let run.
        sync_api.expect(self.at(id)).to_contain_text(text)

    def see_rows(self, count):
        sync_api.expect(self.names).to_have_count(count)


def test_it_shows_streams_those_in_trouble_first_and_goes_on(chromium, tmp_path):
    with Site(tmp_path, 20) as site:
        visit = Visit(chromium, site.address)
        visit.see_rows(21)
        visit.see("streams_served", "20")
        visit.see("alarms", "3")
        visit.see("images_a_second", "38.0")
        visit.see("model", "net 0f1e2d3c4b5a, eata+debias+steady")
        first, *others = visit.names.all_inner_texts()
        assert first == HOSTILE  # as text
        assert sorted(others[:3]) == ["camera-001", "camera-010", "camera-019"]  # these ring
        reasons = visit.page.locator("tr.why").all_inner_texts()
        assert len(reasons) == 4 and "damaged" in reasons[0] and "few classes" in reasons[1]
        visit.at("filter").fill("CAMERA-01")
        visit.see_rows(10)
        visit.see("count", "10 of 21 streams")
        visit.at("filter").fill("")
        site.service.tally.images = 7_654_321
        visit.see("images", "7,654,321")
    visit.see("notice", "does not answer")
    visit.see_rows(21)  # the last figures stay
    asked = {url.removeprefix(site.address) for url in visit.asked}
    assert asked <= {"", "v2/streams", "favicon.ico"}
    assert [text for text in visit.said if "Failed to load" not in text] == []


def test_it_asks_for_the_token_where_there_is_one(chromium, tmp_path):
    with Site(tmp_path, 1, token=TOKEN) as site:
        visit = Visit(chromium, site.address)
        visit.see("notice", "asks for its token")
        visit.see_rows(0)
        visit.at("token").fill("wrong")
        visit.page.click("button")
        visit.see("notice", "does not know this token")
        visit.at("token").fill(TOKEN)
        visit.page.click("button")
        visit.see_rows(1)
        sync_api.expect(visit.at("token")).to_be_hidden()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("dark", 390)])
def test_it_is_readable_in_light_and_dark_wide_and_narrow(chromium, tmp_path, scheme, width):
    with Site(tmp_path, 200) as site:
        visit = Visit(chromium, site.address, width=width, scheme=scheme)
        visit.see_rows(201)
        colours = visit.page.evaluate(
            """() => ["color", "backgroundColor"].map((one) => getComputedStyle(document.body)[one]
              .match(/\\d+/g).slice(0, 3).reduce((sum, value) => sum + Number(value), 0))"""
        )
        assert (colours[0] < colours[1]) == (scheme == "light")
        assert abs(colours[0] - colours[1]) > 400
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
