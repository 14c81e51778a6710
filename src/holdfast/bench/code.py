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
    """Hashes of the code that these methods run: holdfast's own, and the files of a user's own
    methods."""
    own = [type(method) for method in methods if is_own(type(method))]
    return {"code": code_hash(), **{f"method {kind.name}": own_hash(kind) for kind in own}}


def hash_source(package: Path, part: str = "") -> str:
    digest = hashlib.sha256()
    for path in sorted((package / part).rglob("*.py")):
        name = path.relative_to(package).as_posix()
        if not name.startswith(tuple(ASIDE)):
            digest.update(f"{name} {_statements(ast.parse(path.read_bytes()))}\n".encode())
    return digest.hexdigest()


def _statements(node: object) -> str:
    """Like `ast.dump`, but the same under every Python version, and without docstrings."""
    if isinstance(node, list):
        return f"[{' '.join(_statements(part) for part in node if not _is_text(part))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    # Empty fields are left out: older Pythons do not have all of those that newer ones read.
    filled = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
    return f"{type(node).__name__}({' '.join(f'{n}={_statements(value)}' for n, value in filled)})"


def _is_text(statement: object) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
