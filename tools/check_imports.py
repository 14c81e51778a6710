"""Imports go one way: no cycles between modules, and no package imports what stands above it.

python tools/check_imports.py [ROOT], where ROOT holds the package `holdfast`; `make lint` runs it.

Every import counts, also one inside a function or for the type checker alone: a reader follows it
all the same. One exception: a package's `__init__.py` that loads its public names when they are
first asked for (inside a function, or under TYPE_CHECKING) points down to where they live, and
what lies below may still ask it for its version.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

NAME = "holdfast"
HIGH = {"exporting", "paper", "rehearsal", "report", "serving", "cli"}
ABOVE_DATA = {"explain", "bench", "fleet", "results", *HIGH}
ABOVE_ENGINE = {"models", "data", *ABOVE_DATA}
ALL = {"api", "engine", "parts", "recipes", "source", "util", *ABOVE_ENGINE}

# What a package may not import, itself aside. A new package needs a line here.
FORBIDDEN: dict[str, set[str]] = {
    "util": ALL,
    "engine": ABOVE_ENGINE,
    "parts": ABOVE_ENGINE,
    "source": ABOVE_ENGINE,
    "recipes": ABOVE_ENGINE,
    "api": ABOVE_ENGINE,
    "models": ALL - {"util", "engine"},
    "data": ABOVE_DATA,
    "explain": ABOVE_DATA,
    "bench": {"fleet", "results", *HIGH},
    "fleet": {"models", "data", "explain", "bench", "results", *HIGH},
    "results": {"fleet", *HIGH},
    "exporting": ALL - {"util", "engine"},
    "paper": {"exporting", "rehearsal", "report", "serving", "cli"},
    "rehearsal": {"exporting", "paper", "serving", "cli"},
    "report": ALL - {"results", "util"},
    "serving": ALL - {"util", "engine", "data", "fleet"},
    "cli": set(),
    "__main__": ALL - {"cli"},
}


class Import(NamedTuple):
    """One module imports another, in this line."""

    importer: str
    imported: str
    file: Path
    line: int


def check(root: Path) -> list[str]:
    """What is wrong below a folder that holds the package: `file:line: what, and what to do`."""
    modules = {_module_name(file.relative_to(root)): file for file in root.glob(f"{NAME}/**/*.py")}
    imports = [statement for module in modules for statement in _imports(module, modules)]
    return [*_without_rule(modules), *dict.fromkeys(_wrong_way(imports)), *_cycles(imports)]


def _module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(module: str, modules: dict[str, Path]) -> Iterator[Import]:
    file = modules[module]
    is_package = file.name == "__init__.py"
    package = module if is_package else module.rpartition(".")[0]
    for node in _statements(ast.parse(file.read_text("utf-8")), with_lazy=not is_package):
        for name in _imported_names(node, package):
            # The name may be a module's, or that of something in a module.
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module:
                yield Import(module, target, file, node.lineno)


def _statements(node: ast.AST, with_lazy: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif with_lazy or not _is_lazy(child):
            yield from _statements(child, with_lazy)


def _is_lazy(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.FunctionDef)


def _imported_names(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parts = package.split(".")
        base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
    return [f"{base}.{alias.name}" for alias in node.names]


def _package(module: str) -> str:
    """The first name below holdfast: its package, or a module such as api; "" for holdfast."""
    return module.partition(".")[2].partition(".")[0]


def _without_rule(modules: dict[str, Path]) -> Iterator[str]:
    for package in sorted({_package(module) for module in modules} - {"", *FORBIDDEN}):
        file = modules[f"{NAME}.{package}"]
        yield f"{file}:1: {package} has no rule: write into FORBIDDEN what it may not import."


def _wrong_way(imports: list[Import]) -> Iterator[str]:
    for importer, imported, file, line in imports:
        package, target = _package(importer), _package(imported)
        if target != package and target in FORBIDDEN.get(package, ()):
            yield (
                f"{file}:{line}: {package} may not import {target} ({imported}): pass what it "
                "needs as an argument, or move it below both."
            )


def _cycles(imports: list[Import]) -> Iterator[str]:
    """One cycle of each group of modules that reach each other."""
    graph: dict[str, set[str]] = {}
    for statement in imports:
        graph.setdefault(statement.importer, set()).add(statement.imported)
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            cycle = error.args[1][::-1]
        else:
            return
        pairs = list(pairwise(cycle))
        lines = [
            next(statement for statement in imports if statement[:2] == pair) for pair in pairs
        ]
        others = "; ".join(
            f"{statement.file}:{statement.line} imports {statement.imported}"
            for statement in lines[1:]
        )
        yield (
            f"{lines[0].file}:{lines[0].line}: a cycle: it imports {lines[0].imported}; {others}. "
            "Move what both need into a module below them."
        )
        graph[cycle[0]].discard(cycle[1])


if __name__ == "__main__":
    source = Path(__file__).parent.parent / "src"
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(os.path.relpath(source))
    violations = check(root)
    print("\n".join(violations) or "Imports go one way.")
    raise SystemExit(bool(violations))
