"""What the tensors in a source's file have to be: types, shapes that fit each other, numbers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from holdfast.util.files import check_numbers

WHOLE = (torch.int32, torch.int64)


def check_contents(tensors: Mapping[str, Tensor]) -> None:
    """An error where they could not have come from a source. Most need not be there."""
    check_numbers(tensors)
    for name in ("prototypes/source", "counts/source", "loader/batch_size", "loader/order"):
        if name not in tensors:
            raise ValueError(f"{name!r} is missing")
    prototypes = tensors["prototypes/source"]
    if prototypes.ndim != 2 or not prototypes.is_floating_point():
        raise ValueError(
            f"'prototypes/source' is {prototypes.dtype} of shape {tuple(prototypes.shape)}; "
            "expected floats of shape (classes, features)"
        )
    classes, size = prototypes.shape
    shapes = _shapes(classes, size)
    for name, tensor in tensors.items():
        if name.startswith("predicted/"):
            fits = tensor.ndim == 2 and len(tensor) == 2 and tensor.dtype in WHOLE
            fits = fits and bool(((tensor >= 0) & (tensor < classes)).all())
        elif name in shapes:
            kind, shape = shapes[name]
            fits = _is(tensor, kind) and tuple(tensor.shape) == shape
        else:
            continue
        if not fits:
            raise ValueError(
                f"{name!r} is {tensor.dtype} of shape {tuple(tensor.shape)}, which does not fit "
                f"{classes} classes and {size} features; expected what a source makes"
            )
    for name in ("counts/source", "counts/batch", "loader/batch_size"):
        if name in tensors and bool((tensors[name] < 0).any()):
            raise ValueError(f"{name!r} counts below 0; expected numbers from 0 on")


def _shapes(classes: int, size: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """By name, whether floats or whole numbers, and of which shape."""
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        "loader/batch_size": ("whole", ()),
        "gaussians/all/mean": ("float", (size,)),
        "gaussians/all/covariance": ("float", (size, size)),
        "gaussians/full/covariance": ("float", (classes, size, size)),
        "gaussians/diagonal/covariance": ("float", (classes, size)),
    }
    for statistics in ("source", "batch"):
        found[f"prototypes/{statistics}"] = "float", (classes, size)
        found[f"counts/{statistics}"] = "whole", (classes,)
    for kind in ("full", "diagonal"):
        found[f"gaussians/{kind}/mean"] = "float", (classes, size)
        found[f"gaussians/{kind}/count"] = "whole", (classes,)
    return found


def _is(tensor: Tensor, kind: str) -> bool:
    return tensor.is_floating_point() if kind == "float" else tensor.dtype in WHOLE
