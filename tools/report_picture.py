"""Make the README's picture of a report from the embedded benchmark's runs.

    make demo && python tools/report_picture.py

Needs Chromium and playwright, as the browser tests do.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from holdfast.paper.comparable import published_rows
from holdfast.report.page import Report, page
from holdfast.results.gather import gather

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "report" / "report.png"
WIDTH = 1280


def take(runs: Path, picture: Path) -> None:
    """The top of the page down to the end of its first charts."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "report.html"
        file.write_text(page(Report(gather(runs), published_rows)), encoding="utf-8")
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        sheet = browser.new_page(viewport={"width": WIDTH, "height": 2000})
        sheet.goto(file.as_uri())
        chart = sheet.locator(".chart").first
        chart.locator(".mark-line path").first.wait_for(state="attached")
        box = chart.bounding_box()
        assert box is not None
        picture.parent.mkdir(parents=True, exist_ok=True)
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": box["y"] + box["height"] + 24}
        sheet.screenshot(path=picture, clip=clip, full_page=True)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "runs" / "demo", PICTURE)
