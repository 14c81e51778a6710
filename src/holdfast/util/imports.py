"""Code that a text names: package.module, or path/to/file.py; and packages that adapting does not
need: extras bring them, `pip install 'holdfast[bench]'`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


def import_code(module: str) -> ModuleType:
    """A module by its name or its file, with the current folder on the path."""
    _add_to_path(Path.cwd())
    file = Path(os.path.expanduser(module)) if module.endswith(".py") else None
    if file is not None and not file.is_file():
        raise ValueError(f"There is no file {module}.")
    try:
        return importlib.import_module(module) if file is None else _run_file(file.resolve())
    except (Exception, SystemExit) as error:  # a script may end the process where it is imported
        message = f"{type(error).__name__}: {error}".rstrip(": ").rstrip(".")
        raise ValueError(f"Cannot import {module}: {message}{_line(error, file)}.") from error


def is_file(module: str) -> bool:
    """Whether a module was run from a file that a text named: no import statement finds it."""
    return hasattr(sys.modules.get(module), "__sha256__")


@cache
def file_hash(module: str) -> str | None:
    """SHA-256 of a module's file, as it was when it was first asked for: what is edited while a
    process goes on is not what runs in it. None where there is no file, as at a prompt."""
    imported = sys.modules.get(module)
    if is_file(module):
        return str(vars(imported)["__sha256__"])
    try:
        content = Path(str(getattr(imported, "__file__", None))).read_bytes()
        return hashlib.sha256(content).hexdigest()
    except OSError:
        return None


def _run_file(file: Path) -> ModuleType:
    """Run once as long as it stays the same; what was changed is run again."""
    text = file.read_bytes()
    mark = hashlib.sha256(str(file).encode() + text).hexdigest()[:12]
    # Under a name of its own, so that a file called torch.py hides nothing.
    name = f"file_{file.stem}_{mark}"
    if name not in sys.modules:
        _add_to_path(file.parent)
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        vars(module)["__sha256__"] = hashlib.sha256(text).hexdigest()
        try:
            # Not by its loader, which may take bytecode that is a second older.
            exec(compile(text, file, "exec"), vars(module))
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _line(error: BaseException, file: Path | None) -> str:
    """Where in the file it happened."""
    path = None if file is None else str(file.resolve())
    lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == path]
    return f" (line {lines[-1]})" if lines else ""


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


_BENCH = ("PIL", "msgspec", "polars", "pooch", "rich", "tomli", "tyro")

# The extra that brings a package, by the name it is imported under.
EXTRAS = {
    "kornia": "augment",
    **dict.fromkeys(_BENCH, "bench"),
    **dict.fromkeys(("altair", "jinja2", "vl_convert"), "report"),
    "ray": "ray",
    **dict.fromkeys(("onnx", "onnxruntime", "onnxscript"), "onnx"),
    **{name: name for name in ("executorch", "openvino")},
    **dict.fromkeys(("prometheus_client", "starlette", "uvicorn"), "serve"),
}


class MissingExtraError(ImportError, ValueError):
    """What was asked for needs a package that is not installed."""

    def __init__(self, package: str, feature: str):
        super().__init__(
            f"{feature} needs {package}, which is not installed: "
            f"pip install 'holdfast[{EXTRAS[package]}]'.",
            name=package,
        )


def require(package: str, feature: str) -> None:
    """An error at once, instead of in the middle of the work, where a package is not there."""
    if find_spec(package) is None:
        raise MissingExtraError(package, feature)
