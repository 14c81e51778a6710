"""How large a report is, and how fast a browser opens it.

    python benchmarks/report.py RUNS

Needs Chromium and playwright, as the browser tests do. A page is open when its first chart is
drawn; every chart is drawn when all of them are, which a page does by itself only as one scrolls.
"""

import shutil
import statistics
import tempfile
import time
from pathlib import Path

import tyro
from playwright.sync_api import sync_playwright

from holdfast.paper.comparable import published_rows
from holdfast.report.page import Report, page
from holdfast.results.gather import gather

LINE = "[...document.querySelectorAll('.chart')].{}((one) => one.querySelector('.mark-group path'))"


def main(runs: tyro.conf.Positional[tuple[Path, ...]], rounds: int = 10) -> None:
    gathered = gather(*runs)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "report.html"
        start = time.perf_counter()
        file.write_text(page(Report(gathered, published_rows)), encoding="utf-8")
        print(
            f"{len(gathered.runs)} runs, made in {time.perf_counter() - start:.1f} s: "
            f"{file.stat().st_size / 1e6:.2f} MB"
        )
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        opened, drawn = [], []
        for _ in range(rounds):
            sheet = browser.new_page(viewport={"width": 1280, "height": 900})
            start = time.perf_counter()
            sheet.goto(file.as_uri())
            sheet.wait_for_function(LINE.format("some"))
            opened.append(time.perf_counter() - start)
            sheet.evaluate("dispatchEvent(new Event('beforeprint'))")
            sheet.wait_for_function(LINE.format("every"))
            drawn.append(time.perf_counter() - start)
            sheet.close()
        browser.close()
    for step, taken in (("opens", opened), ("every chart drawn", drawn)):
        print(f"{step}: median {statistics.median(taken):.2f} s, slowest {max(taken):.2f} s")


if __name__ == "__main__":
    tyro.cli(main)
