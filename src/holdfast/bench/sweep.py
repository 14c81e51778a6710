"""From what a sweep names to its runs: the product of all that is given as a list."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast, get_args

from holdfast.bench.options import OPTIONS, kind_of
from holdfast.bench.plan import Run, distinct
from holdfast.data.streams import parse as parse_stream
from holdfast.recipes.base import HOST_SETTINGS, Learner
from holdfast.recipes.compose import brief, compose, parse
from holdfast.recipes.registry import find
from holdfast.util.settings import Setting, Value
from holdfast.util.words import listed, nearest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Factors of a method's default learning rate.
FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)

# Keys whose value is a number for each channel.
CHANNELS = ("mean", "std")

SWEPT = "sweep"
CHOSEN = "chosen with labels"

# A random order, by its number.
RANDOM = re.compile(r"random (\d+)")


@dataclass(frozen=True)
class Point:
    """A run, and where in the sweep it stands: the method, and all that is swept but the seed."""

    run: Run
    at: Mapping[str, str]


def read_sweep(path: Path) -> dict[str, Any]:
    """What a TOML file names, with keys as for `expand` and those of the sweep as a whole."""
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    try:
        keys = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as TOML: {error}") from None
    for key in WHOLE.keys() & keys.keys():
        keys[key] = WHOLE[key].check(keys[key])
    return keys


def expand(given: Mapping[str, Any]) -> list[Point]:
    """All runs, each once. Keys are those of a run, and any value may be a list of values; also

    seeds    how many, from each `seed` on
    order    of the stream's domains; and orders, how many random ones
    lr       true: several learning rates of each method
    grid     values by method.setting, for every method that has it; or by any key

    What is said of the sweep as a whole is left aside.
    """
    grid = _flat(given.get("grid", {}))
    named = {key: value for key, value in given.items() if key not in ("grid", *WHOLE)}
    named |= {key: value for key, value in grid.items() if "." not in key}
    axes = {key: _read(key, value) for key, value in named.items()}
    first, counts = axes.pop("seed", [0]), axes.pop("seeds", [1])
    axes["seed"] = [seed + k for seed in first for k in range(max(counts))]
    random = [f"random {k}" for k in range(max(axes.pop("orders", [0])))]
    if random or "order" in axes:
        axes["order"] = axes.get("order", []) + random
    rates, methods = axes.pop("lr", [False]), axes.pop("method", [])
    settings = {key: _read_setting(key, grid[key], methods) for key in grid if "." in key}
    swept = [key for key, values in axes.items() if len(values) > 1 and key != "seed"]
    titles = dict(zip(methods, distinct([(brief(text), text) for text in methods]), strict=True))
    points: dict[str, Point] = {}
    for method, *values in product(methods, *axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        for spec, at, tags in _vary(method, chosen.get("preset"), settings, any(rates)):
            run = Run.of(spec, tags=tags, **_ordered(chosen))
            position = {"method": titles[method], **at, **{key: str(chosen[key]) for key in swept}}
            points.setdefault(run.identity, Point(run, position))
    if not points:
        raise ValueError("The sweep has no run: name a method, and leave no list empty.")
    return list(points.values())


def _flat(table: Any, prefix: str = "") -> dict[str, Any]:
    """In TOML, debias.alpha without quotes is a table in a table."""
    if not isinstance(table, Mapping):
        return {prefix: table}
    dot = f"{prefix}." if prefix else ""
    return {k: v for name, value in table.items() for k, v in _flat(value, f"{dot}{name}").items()}


def _key(name: str, hint: Any) -> Setting:
    """What a key admits; with the default `none` it may be left open."""
    kind = kind_of(hint)
    choices, default = get_args(kind), "none" if kind is not hint else ""
    least = {"seeds": 1, "orders": 0, "jobs": 1, "snapshot": 0}.get(name)
    return Setting("sweep", name, str if choices else kind, choices, default, "", least, None)


OWN_KEYS = {"seeds": int, "order": str, "orders": int, "lr": bool}
HINTS = {"method": str, **{flag: option.hint for flag, option in OPTIONS.items()}, **OWN_KEYS}
KEYS = {name: _key(name, hint) for name, hint in HINTS.items()}
# Keys of a sweep as a whole, which belong to no single run.
WHOLE = {
    name: _key(name, hint) for name, hint in (("out", str), ("jobs", int), ("snapshot", float))
}


def _read(key: str, given: Any) -> list[Any]:
    """The values of a key, in its own type."""
    if key in WHOLE:
        raise ValueError(f"{key} is one for the whole sweep: it cannot stand in a grid.")
    if key not in KEYS:
        valid = [*KEYS, *WHOLE, "grid"]
        raise ValueError(
            f"A sweep has no key {key!r}.{nearest(key, valid)} Keys: {listed(valid, 99)}."
        )
    setting = KEYS[key]
    given = _as_texts(given) if key in CHANNELS else given
    values = [
        None if str(text).lower() == "none" else _value(setting, text) for text in _many(given)
    ]
    if None in values and setting.default != "none":
        raise ValueError(f"sweep: {key} takes {setting.admits()}, not none.")
    return values


def _read_setting(key: str, given: Any, methods: Sequence[str]) -> list[Value | None]:
    """The values of a method's setting, which some method of the sweep has."""
    part, _, name = key.partition(".")
    swept = {piece.name: type(piece) for method in methods for piece in parse(method)}
    settings = {setting.name: setting for setting in (swept.get(part) or find(part)).settings()}
    if name not in settings:
        raise ValueError(
            f"{part} has no setting {name!r}.{nearest(name, settings)} "
            f"Its settings: {listed(settings, 99) or 'none'}."
        )
    if not any(_fits(key, method) for method in methods):
        near = nearest(part, swept)
        raise ValueError(f"{key} fits no method of the sweep, {listed(methods)}.{near}")
    return [_value(settings[name], value) for value in _many(given)]


def _value(setting: Setting, given: Any) -> Value | None:
    """A value that is given as TOML has it, or as text."""
    return setting.read(given, quoted=False) if isinstance(given, str) else setting.check(given)


def _as_texts(given: Any) -> Any:
    """Numbers by channel as a run takes them: [0.5, 0.4, 0.3] is one text, not three values; a list
    of such lists is a list of texts."""
    if isinstance(given, list) and any(isinstance(item, list | str) for item in given):
        return [_as_texts(item) for item in given]
    return given if isinstance(given, str) else ",".join(map(str, _many(given)))


def _many(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _ordered(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """A run's values, with the order of domains written into the stream."""
    values = dict(chosen)
    order = values.pop("order", None)
    if order is not None:
        random = RANDOM.fullmatch(order)
        drawn = {"order": "random", "order_seed": int(random[1])} if random else {"order": order}
        stream = parse_stream(values.get("stream", "continual"))
        values["stream"] = str(replace(stream, **cast(Any, drawn)))
    return values


def _fits(key: str, method: str) -> bool:
    """Whether a method has that setting; a plug-in leaves some to its host."""
    part, _, name = key.partition(".")
    return any(
        piece.name == part and (position == 0 or name not in HOST_SETTINGS)
        for position, piece in enumerate(parse(method))
    )


def _vary(
    method: str, preset: str | None, grid: Mapping[str, Sequence[Value | None]], rates: bool
) -> Iterator[tuple[str, dict[str, str], tuple[str, ...]]]:
    """The method with each choice of what fits it, as it is where nothing does; where that is in
    the sweep, and the run's tags."""
    keys = [key for key in grid if _fits(key, method)]
    for values in product(*(grid[key] for key in keys)):
        spec, at = method, dict(zip(keys, map(str, values), strict=True))
        for key, value in zip(keys, values, strict=True):
            spec = _write(spec, key, value)
        if not rates:
            yield spec, at, (SWEPT,)
            continue
        host = compose(spec, preset=preset).host
        if not isinstance(host, Learner):
            raise ValueError(f"{method} takes no step, so it has no learning rate to sweep.")
        for factor in FACTORS:
            rate = float(f"{factor * host.lr:.6g}")  # 7.5e-05, not 7.500000000000001e-05
            tags = (SWEPT,) if factor == 1 else (SWEPT, CHOSEN)
            yield _write(spec, f"{host.name}.lr", rate), {**at, "lr": f"{rate:g}"}, tags


def _write(method: str, key: str, value: Value | None) -> str:
    """The spec string with one setting put in."""
    part, _, name = key.partition(".")
    given = cast(Any, {name: value})
    return "+".join(
        str(replace(piece, **given) if piece.name == part else piece) for piece in parse(method)
    )
