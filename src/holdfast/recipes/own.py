"""Methods of one's own, by the place of their class."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from holdfast.recipes.base import Learner, Method
from holdfast.recipes.registry import check_fields, check_name, is_own
from holdfast.util.files import text_hash
from holdfast.util.imports import file_hash, import_code, is_file
from holdfast.util.words import listed, nearest

_loaded: dict[str, type[Method]] = {}


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


def _methods_in(module: ModuleType) -> list[str]:
    return [
        name
        for name, one in vars(module).items()
        if isinstance(one, type) and issubclass(one, Method) and is_own(one)
    ]
