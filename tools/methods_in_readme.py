"""Write the README's table of methods from the registry, hosts first and then plug-ins:
`python tools/methods_in_readme.py`."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.explain.card import by_kind, describe
from holdfast.util.words import enumerated

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"(?<=<!-- methods -->\n).*?(?=<!-- end -->)", flags=re.S)


def with_table(text: str) -> str:
    """The text with the table between its marks renewed."""
    rows = ["| method | kind | what it does | needs of the source |", "|---|---|---|---|"]
    for name, method in by_kind().items():
        sentence = describe(method)[0].replace("|", r"\|")  # which would end a cell
        needs = enumerated(method().resolved().needs() or ("–",))
        rows.append(f"| `{name}` | {method.kind()} | {sentence} | {needs} |")
    return BLOCK.sub(lambda _: "\n".join(rows) + "\n", text)


if __name__ == "__main__":
    README.write_text(with_table(README.read_text()))
