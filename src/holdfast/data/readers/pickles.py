"""The pickle files of the CIFAR sets, read without running anything that stands in them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# What numpy itself names in a pickled array, without an import of a private module.
_reconstruct: Any = np.zeros(0).__reduce__()[0]


# A pickle may set the attributes of what it names, even a function's defaults. These have none.
class _Dtype:
    __slots__ = ()

    def __call__(self, name: str, align: object = False, copy: object = False) -> np.dtype[Any]:
        # Old pickles give 0 and 1 here, which numpy warns about.
        return np.dtype(name, bool(align), bool(copy))


class _Encode:
    __slots__ = ()

    def __call__(self, text: str, encoding: str = "latin1") -> bytes:
        # How Python 3 writes bytes for Python 2. No other codec: some of them unpack archives.
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"it encodes text as {encoding!r}")
        return text.encode("latin1")


class _FromBuffer:
    __slots__ = ()

    def __call__(
        self, values: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], order: str
    ) -> Any:
        # How arrays are written since Python 3.8.
        return np.frombuffer(values, dtype).reshape(shape, order="F" if order == "F" else "C")


ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _FromBuffer(),
    ("numpy._core.numeric", "_frombuffer"): _FromBuffer(),
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _Dtype(),
    ("_codecs", "encode"): _Encode(),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def read_pickle(path: Path) -> dict[str, Any]:
    """A dictionary of numbers, texts, lists and arrays: anything else is refused."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    try:
        with open(path, "rb") as file:
            contents = _Unpickler(file, encoding="latin1").load()
    except Exception as error:  # a damaged pickle may raise anything
        raise ValueError(
            f"{path} is not a CIFAR file: expected a pickled dictionary of numbers and numpy "
            f"arrays, but {error or type(error).__name__}. Nothing in it was run."
        ) from None
    if not isinstance(contents, dict):
        raise ValueError(f"{path} holds {type(contents).__name__}; expected a CIFAR dictionary.")
    return contents
