"""What the tensors in a source's file have to be: types, shapes that fit each other, numbers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from holdfast.util.files import check_numbers

WHOLE = (torch.int32, torch.int64)
ALWAYS = ("prototypes/source", "counts/source", "loader/batch_size", "loader/order")
BY_CLASS = (
    "prototypes/source",
    "prototypes/batch",
    "gaussians/diagonal/mean",
    "gaussians/full/mean",
)
# Tensors that are made in one pass: all of them are there, or none.
_ALL = ("gaussians/all/mean", "gaussians/all/covariance")
TOGETHER = (
    ("prototypes/batch", "counts/batch"),
    *(
        (*(f"gaussians/{kind}/{name}" for name in ("mean", "covariance", "count")), *_ALL)
        for kind in ("diagonal", "full")
    ),
)


def check_contents(tensors: Mapping[str, Tensor], *, whole: bool = True) -> None:
    """An error where they could not have come from a source, as a whole or what a method took of
    one."""
    check_numbers(tensors)
    if missing := [n for n in (ALWAYS if whole else ()) if n not in tensors]:
        raise ValueError(f"it has no {missing[0]!r}; expected {', '.join(ALWAYS)}")
    shapes = _shapes(*_classes_and_size(tensors))
    for name, tensor in tensors.items():
        if tensor.is_complex() or not _fits(name, tensor, shapes):
            raise ValueError(
                f"{name!r} is {tensor.dtype} of shape {tuple(tensor.shape)}; expected what fits "
                "the source's classes and features"
            )
        if name == "loader/batch_size" and not tensor:
            raise ValueError(f"{name!r} is 0; expected at least 1")
        lacking = [
            [partner for partner in together if partner not in tensors]
            for together in TOGETHER
            if name in together
        ]
        if lacking and all(lacking):  # some belong to several, of which one will do
            raise ValueError(f"it has {name!r}; expected {lacking[0][0]!r} too")


def _fits(name: str, tensor: Tensor, shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> bool:
    """Whether a tensor of this name may have this type and shape; other names are not known."""
    if name.startswith("predicted/"):
        (classes,) = shapes["counts/source"][1]
        pairs = tensor.ndim == 2 and len(tensor) == 2 and tensor.dtype in WHOLE
        return pairs and bool(((tensor >= 0) & (tensor < classes)).all())
    if name not in shapes:
        return True
    kind, shape = shapes[name]
    if kind == "float":
        return tensor.is_floating_point() and tuple(tensor.shape) == shape
    counts = tensor.dtype in WHOLE and tuple(tensor.shape) == shape
    return counts and bool((tensor >= 0).all())


def _classes_and_size(tensors: Mapping[str, Tensor]) -> tuple[int, int]:
    """The shape of the first tensor that has one row a class; 0 where there is none."""
    for name in BY_CLASS:
        if name in tensors and tensors[name].ndim == 2:
            classes, size = tensors[name].shape
            return classes, size
    return 0, 0


def _shapes(classes: int, size: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """By name, whether floats or whole numbers, and of which shape."""
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {
        "loader/batch_size": ("whole", ()),
        "gaussians/all/mean": ("float", (size,)),
        "gaussians/all/covariance": ("float", (size, size)),
        "gaussians/full/covariance": ("float", (classes, size, size)),
        "gaussians/diagonal/covariance": ("float", (classes, size)),
    }
    for statistics in ("source", "batch"):
        shapes[f"prototypes/{statistics}"] = "float", (classes, size)
        shapes[f"counts/{statistics}"] = "whole", (classes,)
        shapes[f"spread/{statistics}"] = "float", ()
    for kind in ("full", "diagonal"):
        shapes[f"gaussians/{kind}/mean"] = "float", (classes, size)
        shapes[f"gaussians/{kind}/count"] = "whole", (classes,)
    return shapes
