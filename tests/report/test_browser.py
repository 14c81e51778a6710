"""The page in a browser: headless Chromium, driven by playwright."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from made import HOSTILE, make_run

from holdfast.report.charts import HEIGHTS
from holdfast.report.follow import Server
from holdfast.report.page import Report, page
from holdfast.results.gather import gather

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")

# Root has no sandbox, and a machine without a network should not be asked for one.
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
WIDE, NARROW = 1280, 390


@pytest.fixture(scope="module")
def launch():
    with sync_api.sync_playwright() as playwright:
        given = {"executable_path": CHROMIUM, "args": list(ARGUMENTS)}
        yield partial(playwright.chromium.launch, **given)


@pytest.fixture(scope="module")
def chromium(launch):
    browser = launch()
    yield browser
    browser.close()


class Visit:
    """One look at a page, and all that it said and asked for."""

    def __init__(self, browser, url, *, width=WIDE, scheme="light"):
        viewport = {"width": width, "height": 900}
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda one: self.said.append(f"{one.type}: {one.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        self.page.on(
            "dialog", lambda one: (self.said.append(f"dialog: {one.message}"), one.dismiss())
        )
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.goto(url)

    def faults(self):
        """Once methods are left out, Vega warns of scales without data; that is no fault."""
        return [text for text in self.said if "WARN Infinite extent" not in text]

    def draw_all(self):
        """As for printing, when every chart is drawn."""
        self.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        self.page.wait_for_function(
            "[...document.querySelectorAll('.chart')].every((one) => one.dataset.drawn)"
        )

    def marks(self):
        """How many lines, bars and points each chart shows."""
        return self.page.evaluate(
            """() => Object.fromEntries([...document.querySelectorAll('.chart')].map((one) => [
              one.dataset.chart,
              one.querySelectorAll('.mark-line path, .mark-rect path, .mark-symbol path').length,
            ]))"""
        )

    def colours(self, chart):
        """Of its lines."""
        return self.page.evaluate(
            """(name) => [...new Set([...document.querySelectorAll(
              `[data-chart="${name}"] .mark-line path`
            )].map((one) => one.getAttribute('stroke')))]""",
            chart,
        )

    def settle(self):
        self.page.wait_for_timeout(250)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


@pytest.fixture(scope="module")
def file(html, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html, encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_renders_fits_and_asks_nobody(chromium, file, width, scheme):
    with Visit(chromium, file, width=width, scheme=scheme) as visit:
        visit.draw_all()
        assert visit.said == []
        assert visit.asked == [file]
        empty = [name for name, count in visit.marks().items() if not count]
        assert empty == []
        measure = "[document.documentElement.scrollWidth, innerWidth]"
        assert visit.page.evaluate(measure) == [width, width]
        # Charts keep to their column, and are no slivers.
        sizes = visit.page.evaluate(
            """() => [...document.querySelectorAll('figure')].map((one) => [
              one.querySelector('svg').getBoundingClientRect().width, one.clientWidth])"""
        )
        assert all(0.8 * room < drawn <= room + 1 for drawn, room in sizes)
        dark = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(json.loads(f"[{dark[4:-1]}]")) < 200) == (scheme == "dark")


def test_the_legend_filters_every_chart_and_marks_rows(chromium, file):
    with Visit(chromium, file) as visit:
        visit.draw_all()
        before, shown = visit.marks(), visit.page.locator(".legend input")
        eata = visit.page.locator(".legend label", has_text="eata").first
        assert "#d55e00" in visit.colours("stream")  # the second method
        eata.click()
        visit.settle()
        after = visit.marks()
        assert "#d55e00" not in visit.colours("stream")
        has_eata = visit.page.evaluate(
            """() => { const data = JSON.parse(document.getElementById('data').textContent);
              const place = data.methods.indexOf('eata');
              return Object.fromEntries(Object.entries(data.charts).map(([name, one]) => [
                name, one.tables.some((table) => data.tables[table].method?.includes(place))])) }"""
        )
        for name, count in before.items():
            assert (after[name] < count) == has_eata[name], name
        off = visit.page.locator("tr.off")
        assert off.count() >= 3
        assert all(
            text.strip().startswith("eata") for text in off.locator("th").all_text_contents()
        )
        visit.page.get_by_role("button", name="None").click()
        visit.settle()
        assert visit.colours("bias-by-domain") == []
        visit.page.get_by_role("button", name="All").click()
        visit.settle()
        assert visit.marks() == before
        assert visit.faults() == []
        assert shown.count() == len(visit.page.locator(".legend label").all())


def test_the_legend_works_by_keyboard_and_lasts(chromium, file):
    with Visit(chromium, file) as visit:
        box = visit.page.locator(".legend input").nth(1)
        box.focus()
        visit.page.keyboard.press("Space")
        visit.draw_all()
        assert "#d55e00" not in visit.colours("stream")
        visit.page.reload()
        assert not visit.page.locator(".legend input").nth(1).is_checked()


def test_a_calibrated_model_would_lie_on_a_line_from_corner_to_corner(chromium, file):
    with Visit(chromium, file) as visit:
        visit.draw_all()
        path = '[data-chart="reliability"] .mark-line path'
        line = visit.page.locator(path).first.evaluate(
            "(one) => [one.getAttribute('stroke-dasharray'), one.getBBox().height]"
        )
        assert line == ["4,4", HEIGHTS["half"]]


def test_hovering_shows_numbers(chromium, file, report):
    with Visit(chromium, file) as visit:
        chart = visit.page.locator('[data-chart="ece"]')
        chart.scroll_into_view_if_needed()
        visit.page.wait_for_selector('[data-chart="ece"][data-drawn]')
        chart.locator(".mark-rect path").first.hover()
        tip = visit.page.locator("#vg-tooltip-element.visible")
        (group,) = (one for one in report.comparisons[0].groups if one.label == "frozen")
        text = tip.inner_text()
        assert "frozen" in text and f"{100 * group.mean('ece_15'):.2f}" in text


def test_hostile_names_stay_text_in_charts_and_tips(chromium, tmp_path):
    for method, place in (("bn", 0), ("tent", 1)):
        told = {"title": f"{HOSTILE}<img src=x onerror=alert({place})>", "method": method}
        make_run(tmp_path / "runs", method, {f"{HOSTILE}": 50, "fog": 60}, manifest=told)
    (tmp_path / "page.html").write_text(page(Report(gather(tmp_path / "runs"))), encoding="utf-8")
    with Visit(chromium, (tmp_path / "page.html").as_uri()) as visit:
        visit.draw_all()
        assert HOSTILE in visit.page.locator("table").first.inner_text()
        visit.page.locator('[data-chart="ece"] .mark-rect path').first.hover()
        assert HOSTILE in visit.page.locator("#vg-tooltip-element.visible").inner_text()
        visit.page.locator("#stream-numbers summary").click()
        assert HOSTILE in visit.page.locator("#stream-numbers table").inner_text()
        assert visit.page.locator("img").count() == 0
        assert visit.said == []


def test_the_theme_can_be_changed_and_charts_follow(chromium, file):
    ink = """() => document.querySelector('[data-chart="stream"] .role-axis-label text')
      .getAttribute('fill')"""
    with Visit(chromium, file) as visit:
        visit.draw_all()
        light = visit.page.evaluate(ink)
        visit.page.get_by_role("button", name="Change to dark colours").click()
        visit.settle()
        assert visit.page.evaluate("document.documentElement.dataset.theme") == "dark"
        visit.page.wait_for_function(f"({ink})() !== {json.dumps(light)}")
        assert visit.said == []


def test_numbers_of_a_chart_are_a_table(chromium, file, report):
    with Visit(chromium, file) as visit:
        visit.draw_all()  # charts that are drawn on the way move what is below them
        visit.page.locator("#entropy-by-domain-numbers summary").click()
        table = visit.page.locator("#entropy-by-domain-numbers table")
        assert table.locator("caption").inner_text() == "Entropy, domain by domain"
        text = table.locator("tbody tr").first.inner_text()
        group = report.comparisons[0].groups[0]
        assert f"{group.mean('entropy/fog'):.5g}" in text


def test_twenty_runs_make_a_small_page(chromium, tmp_path):
    """Of sixteen domains and a hundred classes; benchmarks/report.py says how fast one opens."""
    domains = {f"domain_{number}": 40 + number for number in range(16)}
    for place, method in enumerate(("frozen", "bn", "tent", "eata", "sar")):
        for seed in range(4):
            made = {"started": place, "batches": 10, "classes": 100, "size": 20}
            make_run(tmp_path / "runs", method, domains, seed=seed, batch=place + 2, **made)
    gathered = gather(tmp_path / "runs")
    assert len(gathered.runs) == 20
    path = tmp_path / "page.html"
    path.write_text(page(Report(gathered)), encoding="utf-8")
    assert path.stat().st_size < 5_000_000
    with Visit(chromium, path.as_uri()) as visit:
        visit.page.wait_for_selector('[data-chart="stream"] .mark-line path', state="attached")
        assert visit.said == []


STREAMS = (
    *("continual", "gradual", "mixed", "correlated(gamma=0.1)", "recurring(visits=20)"),
    *("labelshift", "noisy", "paced", "endless"),
)
CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur"),
    *("motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast"),
    *("elastic_transform", "pixelate", "jpeg_compression"),
)


def test_nine_streams_need_no_scroll_bar(launch, tmp_path):
    """Beside a scroll bar down the page, which takes room; with all details open."""
    for stream in STREAMS:
        severe = [f"{name}@{level}" for name in CORRUPTIONS for level in range(1, 6)]
        domains = severe if stream == "gradual" else [*CORRUPTIONS, "original"]
        accuracy = {name: 20 + place for place, name in enumerate(domains)}
        for place, method in enumerate(("frozen", "eata(redundancy=0.3)+debias(alpha=0.99)")):
            cut = 10 if place and stream == "mixed" else None
            for seed in range(1 + (stream in ("continual", "mixed"))):
                given = {"stream": stream, "seed": seed, "started": place, "cut": cut}
                make_run(tmp_path / "runs", method, accuracy, batches=1, size=4, **given)
    path = tmp_path / "page.html"
    path.write_text(page(Report(gather(tmp_path / "runs"))), encoding="utf-8")
    wide = """() => [...document.querySelectorAll("html, .scroll")]
      .filter((one) => one.scrollWidth > one.clientWidth)
      .map((one) => one.ariaLabel || one.tagName)"""
    browser = launch(ignore_default_args=["--hide-scrollbars"])
    with Visit(browser, path.as_uri()) as visit:
        assert visit.page.evaluate("document.documentElement.clientWidth") < WIDE
        visit.page.evaluate("document.querySelectorAll('details').forEach((d) => d.open = true)")
        visit.page.wait_for_selector(".numbers td", state="attached")
        assert visit.page.evaluate(wide) == []
    browser.close()


def test_numbers_are_those_that_a_chart_shows(chromium, file):
    """Charts by domain share their data."""
    with Visit(chromium, file) as visit:
        visit.draw_all()
        visit.page.locator("#bias-by-domain-numbers summary").click()
        heads = visit.page.locator("#bias-by-domain-numbers thead th")
        heads.first.wait_for()
        assert heads.all_text_contents() == ["method", "domain", "bias", "bias_std"]


def test_a_served_page_takes_in_news_and_keeps_what_was_chosen(chromium, tmp_path):
    runs = tmp_path / "runs"

    def show(**of_run):
        for path in sorted(runs.rglob("*"), reverse=True) if runs.exists() else ():
            path.rmdir() if path.is_dir() else path.unlink()
        make_run(runs, "eata", 50)
        make_run(runs, "tent", 70, started=1, **of_run)
        server.show(page(Report(gather(runs)), every=0.2))

    with Server() as server:
        show(cut=4)
        with Visit(chromium, server.address) as visit:
            visit.draw_all()
            assert "4 of 12 batches" in visit.page.locator("header").inner_text()
            visit.page.locator(".legend input").first.uncheck()
            show()
            visit.page.wait_for_function(
                "document.querySelector('header').innerText.includes('All runs are finished')"
            )
            assert not visit.page.locator(".legend input").first.is_checked()
            visit.draw_all()
            visit.settle()
            assert visit.colours("stream") == ["#d55e00"]
            points = '[data-chart="stream"] .mark-symbol path'
            assert visit.page.locator(points).count() == 12
            assert visit.faults() == []
            assert {Path(one).name for one in visit.asked} == {Path(server.address).name}
