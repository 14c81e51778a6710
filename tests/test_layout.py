"""One file, one subject: none is so long that it has several."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_LINES = 350


def test_no_file_is_long():
    files = [
        file
        for folder in ("src", "tests", "benchmarks", "soak", "tools", "docs", "examples")
        for file in (ROOT / folder).rglob("*.py")
    ]
    lines = {str(file.relative_to(ROOT)): file.read_text("utf-8").count("\n") for file in files}
    assert len(lines) > 300
    too_long = {name: count for name, count in lines.items() if count > MOST_LINES}
    assert not too_long, f"split them by subject: {too_long}"
