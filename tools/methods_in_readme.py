"""Write the README's table of methods from the registry: `python tools/methods_in_readme.py`."""

from __future__ import annotations

import re
from pathlib import Path

import holdfast
from holdfast.explain.card import card
from holdfast.util.words import enumerated

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"(?<=<!-- methods -->\n).*?(?=<!-- end -->)", flags=re.S)


def with_table(text: str) -> str:
    """The text with the table between its marks renewed."""
    rows = ["| method | kind | what it does | needs of the source |", "|---|---|---|---|"]
    for name, method in holdfast.methods().items():
        one = card(method.least_spec())
        needs = enumerated(one.needs or ("–",))
        rows.append(f"| `{name}` | {method.kind()} | {one.parts[-1].sentence} | {needs} |")
    return BLOCK.sub(lambda _: "\n".join(rows) + "\n", text)


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
