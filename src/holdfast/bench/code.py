"""The code that decides a run's numbers, as a hash: results of old code are not taken for new."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import holdfast
from holdfast.recipes.base import Method
from holdfast.recipes.registry import code_hash as own_hash
from holdfast.recipes.registry import is_own

# What shows, explains, fetches, plans or compares decides no number of a run. All else counts, and
# so does a file that is new.
ASIDE = {
    *("__init__.py", "__main__.py"),
    *("cli/", "explain/", "exporting/", "fleet/", "paper/", "rehearsal/", "report/", "results/"),
    "serving/",
    "data/fetch/",
    *(f"util/{name}.py" for name in ("cpu", "progress", "terminal", "words")),
    *(f"engine/{name}.py" for name in ("abreast", "apart", "export", "held", "turns")),
    *("source/agreement.py", "data/make.py"),
    *(f"bench/{name}.py" for name in ("__init__", "code", "display", "manifest", "many")),
    *(f"bench/{name}.py" for name in ("given", "on_ray", "options", "sweep")),
}


@cache
def code_hash(part: str = "") -> str:
    """SHA-256 of holdfast's own source, or of a folder of it, as it was when it was first asked
    for: of the statements, whatever their comments, docstrings and layout."""
    return hash_source(Path(holdfast.__file__).parent, part)


def code_hashes(methods: Iterable[Method]) -> dict[str, str | None]:
    """Of the code that decides what these do: holdfast's own, and files of methods of one's own."""
    own = [type(one) for one in methods if is_own(type(one))]
    return {"code": code_hash(), **{f"method {one.name}": own_hash(one) for one in own}}


def hash_source(package: Path, part: str = "") -> str:
    digest = hashlib.sha256()
    for path in sorted((package / part).rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not name.startswith(tuple(ASIDE)):
            digest.update(f"{name} {_statements(ast.parse(path.read_bytes()))}\n".encode())
    return digest.hexdigest()


def _statements(what: object) -> str:
    """Like `ast.dump`, in the same words under every Python, and without texts that stand alone."""
    if isinstance(what, list):
        return f"[{' '.join(_statements(one) for one in what if not _is_text(one))}]"
    if not isinstance(what, ast.AST):
        return repr(what)
    # Older Pythons lack fields that are empty in what newer ones read of the same source.
    filled = ((name, value) for name, value in ast.iter_fields(what) if value not in (None, []))
    return f"{type(what).__name__}({' '.join(f'{n}={_statements(value)}' for n, value in filled)})"


def _is_text(statement: object) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
