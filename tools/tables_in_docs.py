"""Write the tables of docs/ that follow from elsewhere: methods and streams from their registries,
and that of other projects from the README. `python tools/tables_in_docs.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.data.streams import kinds
from holdfast.explain.card import by_kind, describe
from holdfast.util.words import enumerated

ROOT = Path(__file__).parent.parent


def _search(mark: str, text: str) -> re.Match[str]:
    """What stands between the marks."""
    found = re.search(rf"(?<=<!-- {mark} -->\n).*?(?=<!-- end -->)", text, flags=re.DOTALL)
    if found is None:
        raise ValueError(f"There is no place for a table: <!-- {mark} -->, <!-- end -->.")
    return found


def methods() -> Iterator[str]:
    """A row for each, hosts first and then plug-ins."""
    yield "| method | kind | what it does | needs of the source |"
    yield "|---|---|---|---|"
    for name, method in by_kind().items():
        sentence = describe(method)[0].replace("|", r"\|")  # which would end a cell
        needs = enumerated(method().resolved().needs() or ("–",))
        yield f"| `{name}` | {method.kind()} | {sentence} | {needs} |"


def streams() -> Iterator[str]:
    yield "| stream | after | what it shows |"
    yield "|---|---|---|"
    for name, kind in kinds().items():
        yield f"| `{name}` | {kind.after} | {describe(kind)[0]} |"


def peers() -> Iterator[str]:
    """As the README has them."""
    found = _search("peers", (ROOT / "README.md").read_text("utf-8"))
    yield from found[0].rstrip("\n").split("\n")


TABLES: dict[str, Callable[[], Iterator[str]]] = {
    "methods": methods,
    "streams": streams,
    "peers": peers,
}


def with_table(text: str, mark: str) -> str:
    """The text with the table between its marks renewed."""
    rows = "".join(f"{row}\n" for row in TABLES[mark]())
    found = _search(mark, text)
    return text[: found.start()] + rows + text[found.end() :]


if __name__ == "__main__":
    for mark in TABLES:
        path = ROOT / "docs" / f"{mark}.md"
        path.write_text(with_table(path.read_text("utf-8"), mark), "utf-8")
