"""The methods that are known by a name: holdfast's own, and those that installed packages bring."""

from __future__ import annotations

import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import Field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from holdfast.recipes.base import Method
from holdfast.util.imports import is_file
from holdfast.util.words import first_line

# A package names its methods in this group, as in `infomax = "package.module:Infomax"`.
GROUP = "holdfast.methods"

_registry: dict[str, type[Method]] = {}
_entry_points_read = False

M = TypeVar("M", bound=type[Method])


def register(name: str) -> Callable[[M], M]:
    """Class decorator: make a method known under a name."""

    def enter(method: M) -> M:
        check_name(name, method)
        method.name = name
        # One in a file that a spec string names is known by its place alone: the name would mean
        # nothing in another process.
        if not is_file(method.__module__):
            _registry[name] = method
        return method

    return enter


@cache
def _register_all() -> None:
    """Import every file of this package; they import this one, so not before they are asked for."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        import_module(f"{__package__}.{module.name}")


def methods() -> dict[str, type[Method]]:
    """All methods by name, those of installed packages among them. The classes carry the traits
    that `holdfast card` shows.

    >>> import holdfast
    >>> holdfast.methods()["debias"].plugin
    True
    """
    global _entry_points_read
    _register_all()
    if not _entry_points_read:
        _entry_points_read = True  # before they are, since a package may ask for methods()
        _registry.update(_from_packages())
    return dict(sorted(_registry.items()))


def built_in() -> set[str]:
    """The names of holdfast's own methods."""
    _register_all()
    return {name for name, method in _registry.items() if not is_own(method)}


def is_own(method: type[Method]) -> bool:
    """Whether it comes from elsewhere, so that holdfast's version does not tell what it does."""
    return method.__module__.partition(".")[0] != "holdfast"


def check_name(name: str, method: type[Method]) -> None:
    """A name that can be written in a spec string, and is not taken by holdfast."""
    where = f"The name {name!r} of {written_place(method)}"
    if not re.fullmatch(r"[a-z0-9_-]+", str(name)):
        raise ValueError(f"{where} is not of small letters, digits, - and _: rename it.")
    if is_own(method) and name in built_in():
        raise ValueError(
            f"{where} is that of one of holdfast's own methods: give it another, as in "
            f"@register('my-{name}')."
        )


def check_fields(method: type[Method]) -> None:
    """A setting of a class that is no dataclass would be passed over in silence."""
    if any(isinstance(one, Field) for one in vars(method).values()):
        raise ValueError(
            f"{written_place(method)} has settings, and is no dataclass: write "
            "@dataclass(frozen=True) above it."
        )


def _from_packages() -> Iterator[tuple[str, type[Method]]]:
    """The methods that installed packages register; a warning for each that cannot be had."""
    for entry in entry_points(group=GROUP):
        try:
            found = entry.load()
            if not (isinstance(found, type) and issubclass(found, Method)):
                raise ValueError(f"{entry.value} is not a subclass of holdfast.Method")
            check_name(entry.name, found)
            check_fields(found)
        except Exception as error:  # whatever somebody else's package may raise
            package = entry.dist.name if entry.dist is not None else entry.module
            warnings.warn(
                f"The method {entry.name!r} of the package {package} is left out, since it cannot "
                f"be loaded ({type(error).__name__}: {first_line(error)}): mend, update or "
                "uninstall that package.",
                stacklevel=2,
            )
        else:
            found.name = entry.name
            yield entry.name, found


def written_place(method: type[Method]) -> str:
    """Where its class stands, in short: the module of a file is of a name that nobody wrote."""
    where = method.__module__
    if is_file(where):
        where = Path(str(sys.modules[where].__file__)).name
    return f"{where}:{method.__name__}"
