"""What the site makes of the registry as it is built: a page for every method and every kind of
stream, from its card; a page of parts; and docstrings as reStructuredText."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast import parts
from holdfast.data.streams import kinds
from holdfast.data.streams import parse as parse_stream
from holdfast.explain.card import Card, by_kind, card, describe, write
from holdfast.explain.stream_card import StreamCard
from holdfast.recipes.compose import PRESETS
from holdfast.recipes.registry import methods
from holdfast.util.words import enumerated


def pages() -> dict[str, str]:
    """Every page that is made, by its path below docs/."""
    return {
        **{f"methods/{name}.md": method_page(name) for name in by_kind()},
        **{f"streams/{name}.md": stream_page(name) for name in kinds()},
        "parts.md": parts_page(),
    }


def method_page(name: str) -> str:
    method = methods()[name]
    spec = _spec(name)
    found = card(spec)
    part = next(one for one in found.parts if one.name == name)
    facts = {
        "kind": method.kind(),
        "trains": found.trains,
        "needs of the source": enumerated(method().resolved().needs() or ("nothing",)),
        "predicts": found.predicts,
        "forwards a batch": found.forwards,
        "backwards a batch": found.backwards,
        "peak memory": found.memory,
        "state file holds": found.saves,
        "in a fleet": found.in_a_fleet,
        "paper": part.paper,
        "note": part.note,
    }
    on = "" if spec == name else f" Shown on a host, `{spec}`."
    known = "source=source" if found.needs else ""
    call = ", ".join(filter(None, ["model", f'"{spec}"', known]))
    made = "source = holdfast.Source.from_loader(model, train_loader)\n" if found.needs else ""
    return "\n\n".join(
        [
            f"# {name}",
            f"{_text(part.sentence)}{on}",
            *([f"```text\n{part.equation}\n```"] if part.equation else []),
            f"```python\nimport holdfast\n\n{made}adapter = holdfast.adapt({call})\n"
            "logits = adapter(images)\n```",
            _table(("", ""), ((key, _text(value)) for key, value in facts.items() if value)),
            *_settings(name, spec, found),
        ]
    )


def _spec(name: str) -> str:
    """The method alone, or on the first host that takes it."""
    if not methods()[name].needs_host:
        return name
    for host in ("tent", *by_kind()):
        try:
            card(f"{host}+{name}")
        except ValueError:
            continue
        return f"{host}+{name}"
    raise ValueError(f"{name} needs a host, and none takes it.")


def _settings(name: str, spec: str, found: Card) -> Iterator[str]:
    """A row for each setting, with its value by default and under each preset."""
    cards = [found, *(card(spec, preset) for preset in PRESETS)]
    by_card = [
        {entry.name: entry for entry in one.settings}
        for each in cards
        for one in each.parts
        if one.name == name
    ]
    rows = []
    for key, entry in by_card[0].items():
        values = [f"`{write(one[key].value)}`" if key in one else "–" for one in by_card]
        rows.append((f"`{key}`", *values, _text(entry.meaning), _text(entry.takes)))
    if rows:
        yield "## Settings"
        yield _table(("setting", "default", *PRESETS, "meaning", "takes"), rows)


def stream_page(name: str) -> str:
    stream = StreamCard(parse_stream(name))
    sentence, details = describe(type(stream.stream))
    rows = (
        (
            f"`{one.name}`",
            f"`{write(getattr(stream.stream, one.name))}`",
            _text(one.meaning),
            _text(one.admits()),
            _text(one.source),
        )
        for one in stream.stream.settings()
    )
    return "\n\n".join(
        [
            f"# {name}",
            _text(sentence),
            *([_text(" ".join(details.split()))] if details else []),
            _table(("setting", "default", "meaning", "takes", "source"), rows),
            f"After {_text(stream.stream.after)}. Domains: {', '.join(stream.stream.domains())}.",
            "## Sources",
            _table(("", ""), ((key, _text(value)) for key, value in stream.papers.items())),
        ]
    )


def parts_page() -> str:
    """What `holdfast.parts` offers to a method's author, in a line each."""
    rows = []
    for name, what in sorted(vars(parts).items()):
        if not name.startswith("_") and (inspect.isclass(what) or inspect.isfunction(what)):
            said = (inspect.getdoc(what) or "").partition("\n\n")[0]
            kind = "class" if inspect.isclass(what) else "function"
            rows.append((f"`{name}`", kind, _text(" ".join(said.split()))))
    return (
        "# Parts\n\n`from holdfast.parts import …` is all that a method's author needs beside "
        "`holdfast.Method`, `holdfast.Learner`, `holdfast.register` and `holdfast.setting`.\n\n"
        + _table(("name", "", "what it is"), rows)
    )


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _text(text: str) -> str:
    """In a cell: what Markdown would take for its own is escaped, but for code."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()).replace("|", r"\|"))
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([*_<>\[\]$])", r"\\\1", piece)
        for piece in pieces
    )


# What Sphinx calls.


def write_pages(app: Any) -> None:
    """Pages that have changed; those of what is no longer registered go."""
    made = pages()
    folder = Path(app.srcdir)
    for place in ("methods", "streams"):
        (folder / place).mkdir(exist_ok=True)
        for path in (folder / place).glob("*.md"):
            if f"{place}/{path.name}" not in made:
                path.unlink()
    for name, text in made.items():
        path = folder / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def link_rows(app: Any, docname: str, source: list[str]) -> None:
    """In the tables of methods and streams, names lead to their pages, which only the site has."""
    if docname in ("methods", "streams"):
        linked = rf"| [`\1`]({docname}/\1.md) |"
        source[0] = re.sub(r"^\| `([\w-]+)` \|", linked, source[0], flags=re.MULTILINE)


def add_others(app: Any, docname: str, source: list[str]) -> None:
    """A page that the front page does not name stands behind those on deployment."""
    if docname == "index":
        named = source[0].splitlines()
        pages = sorted(path.stem for path in Path(app.srcdir).glob("*.md"))
        others = [name for name in pages if name not in (*named, "index", "parts")]
        source[0] = source[0].replace("production\n", "\n".join(["production", *others, ""]), 1)


FIELD = re.compile(r"(\w+(?:, \w+)*): (.+)")


def as_fields(lines: list[str]) -> list[str]:
    """`name: what it is`, with the lines up to the next or to an empty one, as the field lists that
    Sphinx knows."""
    found: list[str] = []
    in_fields = False
    for line in lines:
        field = FIELD.fullmatch(line)
        if field and (in_fields or not found or not found[-1].strip()):
            found.append(f":{field[1]}: {field[2]}")
            in_fields = True
        else:
            in_fields = in_fields and bool(line.strip())
            found.append(f"  {line}" if in_fields else line)
    return found


def mend_docstring(
    app: Any, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    lines[:] = as_fields(lines)


def setup(app: Any) -> dict[str, bool]:
    app.connect("builder-inited", write_pages)
    app.connect("source-read", link_rows)
    app.connect("source-read", add_others)
    app.connect("autodoc-process-docstring", mend_docstring)
    return {"parallel_read_safe": True}
