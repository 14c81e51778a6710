"""Weights from files: published checkpoints, with what their training wrapped around them."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from holdfast.models.normalization import Normalized
from holdfast.util.words import listed

# DataParallel's, and that of a net inside another module.
PREFIXES = ("module.", "model.")
# Input normalisation, which some checkpoints bring: RobustBench's names and our own.
NORMALIZATION = {"mu": "mean", "sigma": "std", "mean": "mean", "std": "std"}
# AugMix's name beside RobustBench's.
RENAMED = {".conv_shortcut.": ".convShortcut."}

Net = TypeVar("Net", bound=nn.Module)


def load_checkpoint(net: Net, path: str | Path) -> Net:
    """The net with the weights of a checkpoint: safetensors, or what torch saved.

    Nothing in the file is run. Prefixes `module.` and `model.` are dropped, and the entry
    `state_dict` is taken where there is one. A checkpoint that brings its normalisation (`mu` and
    `sigma`) needs a net from `holdfast.normalized`, which takes it over; others fit such a net too.
    """
    load_weights(net, read_checkpoint(path), path)
    return net


def read_checkpoint(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint, by the key names of the bare net."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    contents = _read(path)
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(contents.get(key), Mapping):
            contents = dict(contents[key])
            break
    tensors = {str(key): value for key, value in contents.items() if isinstance(value, Tensor)}
    if not tensors:
        raise ValueError(f"{path} holds no weights; it has {listed(contents) or 'nothing'}.")
    for prefix in (*PREFIXES, *PREFIXES):
        tensors = {key.removeprefix(prefix): value for key, value in tensors.items()}
    for old, new in RENAMED.items():
        tensors = {key.replace(old, new): value for key, value in tensors.items()}
    return tensors


def load_weights(net: nn.Module, tensors: Mapping[str, Tensor], path: str | Path) -> None:
    """Into the net, or an error that names what does not fit, before anything changes."""
    bare = net.model if isinstance(net, Normalized) else net
    tensors = dict(tensors)
    known = bare.state_dict()
    given = [key for key in NORMALIZATION if key in tensors and key not in known]
    buffers = dict(net.named_buffers(recurse=False)) if isinstance(net, Normalized) else {}
    # Left in place where there is nothing to take them over, they are what the net does not have.
    taken = {NORMALIZATION[key]: tensors.pop(key) for key in given} if buffers else {}
    missing = [k for k in known if k not in tensors and not k.endswith("num_batches_tracked")]
    surplus = [key for key in tensors if key not in known]
    wrong = [
        f"{key} is {tuple(tensors[key].shape)}, expected {tuple(value.shape)}"
        for key, value in known.items()
        if key in tensors and tensors[key].shape != value.shape
    ] + [
        f"its {name} is {tuple(value.shape)}, expected {buffers[name].numel()} values"
        for name, value in taken.items()
        if value.numel() != buffers[name].numel()
    ]
    if len(taken) == 1:
        missing.append(f"the {'std' if 'mean' in taken else 'mean'} of its normalisation")
    if missing or surplus or wrong:
        parts = [
            f"it lacks {listed(missing, 4)}" if missing else "",
            f"the network has no {listed(surplus, 4)}" if surplus else "",
            listed(wrong, 4),
        ]
        hint = " Load it into a holdfast.normalized(net, …), which takes its normalisation over."
        raise ValueError(
            f"{path} does not fit {type(bare).__name__}: {'; '.join(p for p in parts if p)}."
            f"{hint if given and not buffers else ''}"
        )
    for name, value in taken.items():
        buffers[name].copy_(value.reshape(buffers[name].shape))
    bare.load_state_dict(tensors, strict=False)


def _read(path: Path) -> dict[Any, Any]:
    try:
        with open(path, "rb") as file:
            start = file.read(16)
        # A safetensors file starts with the length of its header, which is JSON.
        if path.suffix == ".safetensors" or start[8:9] == b"{":
            return dict(load_file(path))
        contents = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, EOFError, OSError, RuntimeError) as error:
        raise ValueError(f"{path} is not a checkpoint, or is cut short: {error}") from None
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} is not a checkpoint of plain weights: {str(error).splitlines()[0]} Nothing in "
            "it was run. If you trust it, load it yourself and save its state_dict alone."
        ) from None
    if not isinstance(contents, Mapping):
        raise ValueError(f"{path} holds {type(contents).__name__}; expected weights by name.")
    return dict(contents)
