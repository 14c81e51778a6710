"""Files that were cut, overwritten, or made to look right."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from holdfast.util import files

Edits = tuple[str, Any]
"""What is done to a file, and with what."""

# Numbers that a program may believe: sizes, counts, offsets.
NUMBERS = (0, 1, 7, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def byte_edits() -> st.SearchStrategy[list[tuple[str, float, Any]]]:
    """Edits at places from 0 to 1: the beginning of a file, and its end."""
    # Headers stand at the beginning (and, in zip files, at the end).
    places = st.one_of(st.floats(0, 1), st.floats(0, 0.02), st.floats(0.97, 1))
    edit = st.one_of(
        st.tuples(st.just("cut"), places, st.none()),
        st.tuples(st.just("flip"), places, st.integers(0, 7)),
        st.tuples(st.just("overwrite"), places, st.binary(min_size=1, max_size=12)),
        st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=12)),
        st.tuples(st.just("remove"), places, st.integers(1, 40)),
        st.tuples(st.just("number"), places, st.sampled_from(NUMBERS)),
        st.tuples(st.just("all"), places, st.binary(max_size=60)),
    )
    return st.lists(edit, min_size=1, max_size=3)


def edited(contents: bytes, edits: list[tuple[str, float, Any]]) -> bytes:
    for kind, place, value in edits:
        at = min(int(place * len(contents)), max(len(contents) - 1, 0))
        before, after = contents[:at], contents[at:]
        if kind == "cut":
            contents = before
        elif kind == "flip" and after:
            contents = before + bytes([after[0] ^ (1 << value)]) + after[1:]
        elif kind == "overwrite":
            contents = before + value + after[len(value) :]
        elif kind == "insert":
            contents = before + value + after
        elif kind == "remove":
            contents = before + after[value:]
        elif kind == "number":
            # Where sizes stand, in a place that eight bytes divide.
            at -= at % 8
            contents = contents[:at] + struct.pack("<Q", value) + contents[at + 8 :]
        elif kind == "all":
            contents = value
    return contents


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(NUMBERS),
    st.integers(-3, 3),
    st.floats(),
    st.text(max_size=12),
    st.lists(st.integers(-2, 2), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
    st.just("frozen"),
    st.just("os:system"),
    st.just("/etc/passwd:Method"),
)


def json_edits() -> st.SearchStrategy[list[tuple[str, float, Any]]]:
    """Edits of one of a JSON object's values, by its place among all."""
    edit = st.one_of(
        st.tuples(st.just("replace"), st.floats(0, 1), JUNK),
        st.tuples(st.just("remove"), st.floats(0, 1), st.none()),
        st.tuples(st.just("add"), st.floats(0, 1), JUNK),
    )
    return st.lists(edit, min_size=1, max_size=3)


def edit_json(contents: Any, edits: list[tuple[str, float, Any]]) -> Any:
    contents = json.loads(json.dumps(contents))
    for kind, place, value in edits:
        keys = list(_keys(contents))
        if not keys:
            break
        holder, key = keys[min(int(place * len(keys)), len(keys) - 1)]
        if kind == "replace":
            holder[key] = value
        elif kind == "remove":
            del holder[key]
        elif isinstance(holder, dict):
            holder[f"{key} too"] = value
    return contents


def _keys(contents: Any) -> Any:
    if not isinstance(contents, dict | list):
        return
    for key in list(contents) if isinstance(contents, dict) else range(len(contents)):
        yield contents, key
        yield from _keys(contents[key])


TENSOR_EDITS = {
    "float64": lambda t: t.double(),
    "float16": lambda t: t.half(),
    "whole numbers": lambda t: t.nan_to_num().long(),
    "complex": lambda t: t.to(torch.complex64),
    "bool": lambda t: t.bool(),
    "flat": lambda t: t.flatten(),
    "one more dimension": lambda t: t[None],
    "one value": lambda t: t.flatten()[:1],
    "a scalar": lambda t: t.new_zeros(()),
    "nothing": lambda t: t.flatten()[:0],
    "longer": lambda t: torch.cat([t.flatten(), t.flatten()]),
    "reversed": lambda t: t.permute(list(reversed(range(t.ndim)))),
    "NaN": lambda t: torch.full(t.shape, torch.nan),
    "zeros": torch.zeros_like,
    "the largest": lambda t: torch.full_like(t, 1) * _largest(t),
    "the least": lambda t: torch.full_like(t, 1) * -_largest(t),
}


def _largest(tensor: Tensor) -> Any:
    if tensor.is_floating_point() or tensor.is_complex():
        return torch.finfo(tensor.dtype).max
    return 1 if tensor.dtype is torch.bool else torch.iinfo(tensor.dtype).max


def tensor_edits() -> st.SearchStrategy[list[tuple[str, float]]]:
    words = sorted([*TENSOR_EDITS, "remove", "rename", "exchange"])
    edit = st.tuples(st.sampled_from(words), st.floats(0, 1))
    return st.lists(edit, min_size=1, max_size=2)


def edit_tensors(tensors: dict[str, Tensor], edits: list[tuple[str, float]]) -> dict[str, Tensor]:
    tensors = dict(tensors)
    for kind, place in edits:
        names = sorted(tensors)
        if not names:
            break
        name = names[min(int(place * len(names)), len(names) - 1)]
        if kind == "remove":
            del tensors[name]
        elif kind == "rename":
            tensors[f"{name}x"] = tensors.pop(name)
        elif kind == "exchange":
            tensors[name], tensors[names[0]] = tensors[names[0]], tensors[name]
        elif tensors[name].numel():
            tensors[name] = TENSOR_EDITS[kind](tensors[name]).clone().contiguous()
    return tensors


def write_signed(path: Path, header: Any, tensors: dict[str, Tensor]) -> None:
    """As holdfast would have written it, checksum and all."""
    text = json.dumps(header)
    metadata = {"holdfast": text, "sha256": files.tensor_hash(tensors, text)}
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, path, metadata=metadata)


def read_signed(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        header = json.loads(file.metadata()["holdfast"])
        return header, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def file_edits() -> st.SearchStrategy[Edits]:
    """Of a file of ours: its bytes, or what it holds with a checksum that fits."""
    return st.one_of(
        st.tuples(st.just("bytes"), byte_edits()),
        st.tuples(st.just("header"), json_edits()),
        st.tuples(st.just("tensors"), tensor_edits()),
    )


def write_edited(original: Path, edits: Edits, path: Path) -> None:
    kind, changes = edits
    if kind == "bytes":
        path.write_bytes(edited(original.read_bytes(), changes))
        return
    header, tensors = read_signed(original)
    if kind == "header":
        header = edit_json(header, changes)
    else:
        tensors = edit_tensors(tensors, changes)
    write_signed(path, header, tensors)
