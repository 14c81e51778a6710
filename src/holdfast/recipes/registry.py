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
# The user's own methods that were loaded in this process, by place.
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
    subject = f"The name {name!r} of {written_place(method)}"
    if not re.fullmatch(r"[a-z0-9_-]+", str(name)):
        raise ValueError(f"{subject} is not of small letters, digits, - and _: rename it.")
    if is_own(method):
        _register_all()
        if name in _registry and not is_own(_registry[name]):
            raise ValueError(
                f"{subject} is that of one of holdfast's own methods: give it another, as in "
                f"@register('my-{name}')."
            )


def check_fields(method: type[Method]) -> None:
    """A setting of a class that is no dataclass would be passed over in silence."""
    if any(isinstance(value, Field) for value in vars(method).values()):
        raise ValueError(
            f"{written_place(method)} has settings, and is no dataclass: write "
            "@dataclass(frozen=True) above it."
        )


def _from_packages() -> Iterator[tuple[str, type[Method]]]:
    """The methods that installed packages register; a warning for each that cannot be had."""
    for entry in entry_points(group=GROUP):
        try:
            method = entry.load()
            if not (isinstance(method, type) and issubclass(method, Method)):
                raise ValueError(f"{entry.value} is not a subclass of holdfast.Method")
            check_name(entry.name, method)
            check_fields(method)
        except Exception as error:  # whatever somebody else's package may raise
            package = entry.dist.name if entry.dist is not None else entry.module
            warnings.warn(
                f"The method {entry.name!r} of the package {package} is left out, since it cannot "
                f"be loaded ({type(error).__name__}: {first_line(error)}): mend, update or "
                "uninstall that package.",
                stacklevel=2,
            )
        else:
            method.name = entry.name
            yield entry.name, method


def written_place(method: type[Method]) -> str:
    """Where its class stands, in short: modules that were made of files have generated names."""
    module = method.__module__
    if is_file(module):
        module = Path(str(sys.modules[module].__file__)).name
    return f"{module}:{method.__name__}"


def code_hash(method: type[Method]) -> str | None:
    """SHA-256 of the file that defines the method; of several files, where it is built on a user's
    other methods. None: it stands in no file."""
    own = [kind for kind in method.__mro__ if issubclass(kind, Method) and is_own(kind)]
    digests = list(dict.fromkeys(file_hash(kind.__module__) for kind in own))
    return digests[0] if len(digests) == 1 else text_hash(repr(digests))


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
    module_name, _, name = (part.strip() for part in place.rpartition(":"))
    module = import_code(module_name)
    names = [
        called
        for called, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Method) and is_own(value)
    ]
    method = getattr(module, name, None)
    if method is None:
        raise ValueError(
            f"{module_name} has no {name!r}.{nearest(name, names)} Methods in it: "
            f"{listed(names) or 'none'}."
        )
    if not (isinstance(method, type) and issubclass(method, Method)) or method in (Method, Learner):
        raise ValueError(
            f"{place} is no method: a method is a subclass of holdfast.Method. Methods in "
            f"{module_name}: {listed(names) or 'none'}."
        )
    called = vars(method).get("name", method.__name__.lower())
    if known.get(called) is method:
        return method
    check_name(called, method)
    check_fields(method)
    if is_file(module.__name__):
        module_name = Path(os.path.expanduser(module_name)).resolve().as_posix()
    method.name, method.place = called, f"{module_name}:{name}"
    _loaded[method.place] = method
    return method


def find_loaded(name: str, hashes: Mapping[str, str | None] | None = None) -> type[Method]:
    """As `find`, for a name in a stored file. Reading a file may not import code, so a user's own
    method has to be loaded before, in this process; its own file may have moved.

    hashes: those that the file has of methods of one's own, as in a manifest. The class of a file
    of the same text will do, whatever its name.
    """
    if ":" not in name:
        return find(name)

    def end(place: str) -> str:
        return re.split(r"[\\/]", place)[-1]

    def same_text(method: type[Method]) -> bool:
        hashed = (hashes or {}).get(f"method {method.name}")
        named = method.__name__ == name.rpartition(":")[2].strip()
        return named and hashed is not None and hashed == code_hash(method)

    last = list(reversed(_loaded.items()))
    alike = [method for _, method in last if same_text(method)]
    alike += [method for place, method in last if place == name]
    alike += [method for place, method in last if end(place) == end(name)]
    if not alike:
        raise ValueError(
            f"{name} is code of your own, which a stored file may not run by itself. If you trust "
            f"that code, load it first: holdfast.compose({name!r}), or where it lies now."
        )
    return alike[0]
