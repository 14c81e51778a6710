"""Methods that do not come with holdfast: by the place of their class, and those that installed
packages register."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import Field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from holdfast.recipes.base import Learner, Method
from holdfast.util.hashing import text_hash
from holdfast.util.imports import file_hash, import_code, is_file
from holdfast.util.words import first_line, listed, nearest

# A package names its methods in this group, as in `infomax = "package.module:Infomax"`.
GROUP = "holdfast.methods"

_loaded: dict[str, type[Method]] = {}


def is_own(method: type[Method]) -> bool:
    """Whether it comes from elsewhere, so that holdfast's version does not tell what it does."""
    return method.__module__.partition(".")[0] != "holdfast"


def code_hash(method: type[Method]) -> str | None:
    """SHA-256 of the file that holds the method; of several, where it is built on other own ones.
    None: it stands in no file."""
    own = [one for one in method.__mro__ if issubclass(one, Method) and is_own(one)]
    found = list(dict.fromkeys(file_hash(one.__module__) for one in own))
    if len(found) == 1:
        return found[0]
    return text_hash(repr(found))


def find_own(place: str, known: Mapping[str, type[Method]]) -> type[Method]:
    """The method that stands at package.module:Class or path/to/file.py:Class; `known` are those
    that have a name."""
    where, _, name = (part.strip() for part in place.rpartition(":"))
    module = import_code(where)
    there = _methods_in(module)
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


def find_loaded(place: str, hashes: Mapping[str, str | None]) -> type[Method] | None:
    """A method of that place that was loaded before, in this process; its file may have moved.
    `hashes` as in a manifest: the class of a file of the same text will do, whatever its name."""

    def end(one: str) -> str:
        return re.split(r"[\\/]", one)[-1]

    def same(one: type[Method]) -> bool:
        hashed = hashes.get(f"method {one.name}")
        named = one.__name__ == place.rpartition(":")[2].strip()
        return named and hashed is not None and hashed == code_hash(one)

    last = list(reversed(_loaded.items()))
    alike = [one for _, one in last if same(one)]
    alike += [one for known, one in last if known == place]
    alike += [one for known, one in last if end(known) == end(place)]
    return alike[0] if alike else None


def check_name(name: str, method: type[Method]) -> None:
    """A name that can be written in a spec string, and is not taken by holdfast."""
    # Imported here, since methods import the registry, which imports this module.
    from holdfast.recipes.compose import built_in

    where = f"The name {name!r} of {_written(method)}"
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
            f"{_written(method)} has settings, and is no dataclass: write "
            "@dataclass(frozen=True) above it."
        )


def registered() -> Iterator[tuple[str, type[Method]]]:
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


def _written(method: type[Method]) -> str:
    """Its place in short: a file that a text named is a module of a name that nobody wrote."""
    where = method.__module__
    if is_file(where):
        where = Path(str(sys.modules[where].__file__)).name
    return f"{where}:{method.__name__}"


def _methods_in(module: ModuleType) -> list[str]:
    return [
        name
        for name, one in vars(module).items()
        if isinstance(one, type) and issubclass(one, Method) and is_own(one)
    ]
