"""Where methods are found: by a name, holdfast's own and those that installed packages bring; or by
the place of their class, those of one's own."""

from __future__ import annotations

import os
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from holdfast.recipes.base import Learner, Method
from holdfast.util.files import text_hash
from holdfast.util.imports import file_hash, import_code, is_file
from holdfast.util.words import first_line, listed, nearest

# A package names its methods in this group, as in `infomax = "package.module:Infomax"`.
GROUP = "holdfast.methods"

_registry: dict[str, type[Method]] = {}
# Those of one's own that were loaded in this process, by place.
_loaded: dict[str, type[Method]] = {}
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


def is_own(method: type[Method]) -> bool:
    """Whether it comes from elsewhere, so that holdfast's version does not tell what it does."""
    return method.__module__.partition(".")[0] != "holdfast"


def check_name(name: str, method: type[Method]) -> None:
    """A name that can be written in a spec string, and is not taken by holdfast."""
    where = f"The name {name!r} of {written_place(method)}"
    if not re.fullmatch(r"[a-z0-9_-]+", str(name)):
        raise ValueError(f"{where} is not of small letters, digits, - and _: rename it.")
    if is_own(method):
        _register_all()
        if name in _registry and not is_own(_registry[name]):
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


def code_hash(method: type[Method]) -> str | None:
    """SHA-256 of the file that holds the method; of several, where it is built on other own ones.
    None: it stands in no file."""
    own = [one for one in method.__mro__ if issubclass(one, Method) and is_own(one)]
    found = list(dict.fromkeys(file_hash(one.__module__) for one in own))
    return found[0] if len(found) == 1 else text_hash(repr(found))


def find(name: str) -> type[Method]:
    """The method of a name; or the one at package.module:Class or path/to/file.py:Class."""
    known = methods()
    if ":" in name:
        return _find_at(name, known)
    if name.endswith(".py"):
        raise ValueError(f"{name} is a file: name the method in it as well, as in {name}:Class.")
    if name.lower() not in known:
        raise ValueError(
            f"There is no method {name!r}.{nearest(name, known)} Methods: {listed(known, 99)}; or "
            "your own, as file.py:Class."
        )
    return known[name.lower()]


def _find_at(place: str, known: Mapping[str, type[Method]]) -> type[Method]:
    where, _, name = (part.strip() for part in place.rpartition(":"))
    module = import_code(where)
    there = [
        called
        for called, one in vars(module).items()
        if isinstance(one, type) and issubclass(one, Method) and is_own(one)
    ]
    found = getattr(module, name, None)
    if found is None:
        raise ValueError(
            f"{where} has no {name!r}.{nearest(name, there)} Methods in it: "
            f"{listed(there) or 'none'}."
        )
    if not (isinstance(found, type) and issubclass(found, Method)) or found in (Method, Learner):
        raise ValueError(
            f"{place} is no method: a method is a subclass of holdfast.Method. Methods in {where}: "
            f"{listed(there) or 'none'}."
        )
    called = vars(found).get("name", found.__name__.lower())
    if known.get(called) is found:
        return found
    check_name(called, found)
    check_fields(found)
    if is_file(module.__name__):
        where = Path(os.path.expanduser(where)).resolve().as_posix()
    found.name, found.place = called, f"{where}:{name}"
    _loaded[found.place] = found
    return found


def find_loaded(name: str, hashes: Mapping[str, str | None] | None = None) -> type[Method]:
    """As `find`, for what stands in a stored file: that may not have code imported by itself, so
    that one's own has to be loaded before, in this process; its file may have moved.

    hashes: those that the file has of methods of one's own, as in a manifest. The class of a file
    of the same text will do, whatever its name.
    """
    if ":" not in name:
        return find(name)

    def end(place: str) -> str:
        return re.split(r"[\\/]", place)[-1]

    def same_text(one: type[Method]) -> bool:
        hashed = (hashes or {}).get(f"method {one.name}")
        named = one.__name__ == name.rpartition(":")[2].strip()
        return named and hashed is not None and hashed == code_hash(one)

    last = list(reversed(_loaded.items()))
    alike = [one for _, one in last if same_text(one)]
    alike += [one for place, one in last if place == name]
    alike += [one for place, one in last if end(place) == end(name)]
    if not alike:
        raise ValueError(
            f"{name} is code of your own, which a stored file may not run by itself. If you trust "
            f"that code, load it first: holdfast.compose({name!r}), or where it lies now."
        )
    return alike[0]
