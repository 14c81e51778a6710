"""The README is short, and what it says of holdfast is so; the tables of docs/ are up to date. Its
code runs with that of all other pages."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from tables_in_docs import TABLES, methods, with_table
from toy_methods import TOYS

import holdfast
from holdfast.data.streams import kinds

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
TWO_SCREENS = 100


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


@pytest.mark.parametrize("mark", TABLES)
def test_a_table_is_up_to_date(mark):
    """If not: python tools/tables_in_docs.py."""
    text = (ROOT / "docs" / f"{mark}.md").read_text("utf-8")
    assert with_table(text, mark) == text and len(list(TABLES[mark]())) > 10


@pytest.mark.usefixtures("toy_methods")
def test_the_table_has_a_row_for_each_method_hosts_first():
    """Also for one that goes on a host only, and for one that is told with a bar."""

    @holdfast.register("toy-bar")
    @dataclass(frozen=True)
    class Bar(TOYS["toy-centre"]):
        """Takes |x| away."""

        needs_host: ClassVar[bool] = True

    _, _, *rows = methods()
    assert all(len(cells(row)) == 4 for row in rows)
    names, kinds_ = ([cells(row)[column] for row in rows] for column in (0, 1))
    assert sorted(names) == sorted(f"`{name}`" for name in holdfast.methods())
    is_host = [kind.startswith("host") for kind in kinds_]
    assert is_host == sorted(is_host, reverse=True) and not all(is_host)
    assert names == sorted(names[: sum(is_host)]) + sorted(names[sum(is_host) :])
    assert rows[names.index("`toy-bar`")] == r"| `toy-bar` | plug-in | Takes \|x\| away. | – |"


def test_the_readme_fits_on_two_screens_and_shows_the_report():
    assert len(README.splitlines()) <= TWO_SCREENS
    (picture,) = re.findall(r"!\[[^]]*\]\(([^)]+)\)", README)
    assert (ROOT / picture).exists()


def test_what_it_links_to_is_there():
    for place in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / place).exists(), place


def test_the_table_of_projects_counts_ours_right_and_is_dated():
    head, _, *rows = TABLES["peers"]()
    assert len({len(cells(row)) for row in (head, *rows)}) == 1
    ours = {cells(row)[0]: cells(row)[1] for row in rows}
    assert ours["methods"] == f"{len(holdfast.methods())}, hosts and plug-ins"
    assert ours["kinds of stream"] == str(len(kinds()))
    assert f"among {len(holdfast.methods())} methods" in README
    assert re.match(r"read on \d{4}-\d\d-\d\d", cells(rows[-1])[0])
