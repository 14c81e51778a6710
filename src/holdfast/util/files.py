"""State files: safetensors with a JSON header and a checksum, written whole; and hashes."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

FORMAT = 1


def write(
    path: str | Path, kind: str, header: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Write tensors with a header, whole or not at all."""
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a plain file: choose another path.")
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps({**header, "kind": kind, "format": FORMAT}, sort_keys=True)
    metadata = {"holdfast": text, "sha256": tensor_hash(plain, text)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda part: save_file(plain, part, metadata=metadata))


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Have a file written beside the target, then rename: a crash leaves the old or the new one."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        write(part)
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        os.chmod(part, 0o666 & ~_umask())  # safetensors gives it to the owner alone
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def read(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors, or an error that says what the file is instead."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        # Outside inference mode, whose tensors cannot take part in learning.
        with torch.inference_mode(False), safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = metadata.get("holdfast", "null")
        header = json.loads(text)
    except (SafetensorError, ValueError, OSError) as error:
        raise ValueError(
            f"{path} is not a holdfast file, or is cut short or damaged ({error}): take a whole "
            "copy, or make it again."
        ) from error
    if not isinstance(header, dict):
        raise ValueError(
            f"{path} is a safetensors file, but holdfast did not write it: expected {kind}."
        )
    if metadata.get("sha256") != tensor_hash(tensors, text):
        raise ValueError(
            f"{path} was changed after holdfast wrote it, its checksum does not fit: take another "
            "copy, or make it again."
        )
    check_header(path, header, {"kind": str, "format": int})
    if header["kind"] != kind:
        raise ValueError(f"{path} holds {header['kind']}, not {kind}: load another file.")
    if header["format"] != FORMAT:
        raise ValueError(
            f"{path} has format {header['format']}, this holdfast reads format {FORMAT}: "
            "write it again, or use the holdfast that wrote it."
        )
    return header, tensors


Types = type | UnionType


def check_header(path: str | Path, header: Mapping[str, Any], types: Mapping[str, Types]) -> None:
    """That a header has these entries. Whoever can write a file can write a checksum that fits."""
    for name, kind in types.items():
        if name not in header or not isinstance(header[name], kind):
            value = repr(header[name])[:80] if name in header else "nothing"
            named = getattr(kind, "__name__", str(kind))
            raise ValueError(
                f"{path}: its header has {value} for {name!r}; expected {named}. Make it again, or "
                "use the holdfast that wrote it."
            )


def check_alike(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """That tensors of these names have these types and shapes, and no NaN: a copy would convert
    and repeat values without a word."""
    for name, tensor in expected.items():
        if name not in found:
            raise ValueError(f"{name!r} is missing; expected {_brief(tensor)}")
        if (found[name].dtype, found[name].shape) != (tensor.dtype, tensor.shape):
            raise ValueError(f"{name!r} is {_brief(found[name])}; expected {_brief(tensor)}")
        check_numbers({name: found[name]})


def check_numbers(tensors: Mapping[str, Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and bool(tensor.isnan().any()):
            raise ValueError(f"{name!r} holds NaN; expected numbers")


def _brief(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}"


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start so, without that part of the name."""
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _umask() -> int:
    mask = os.umask(0o022)  # there is no way to read it but to set it
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def tensor_hash(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """A hash of a text and of named tensors: names, types, shapes and values."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
