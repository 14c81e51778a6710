"""The command line: `holdfast doctor`, `holdfast methods`, `holdfast card`."""

from __future__ import annotations

import importlib
import importlib.util
import operator
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated
from zipfile import BadZipFile

import numpy as np
import torch
import tyro
from torch import Tensor, nn

import holdfast
from holdfast.card import card, methods_table
from holdfast.terminal import show
from holdfast.words import listed, nearest

# As many images of a file as the doctor looks at, or a few more.
ENOUGH = 256


@dataclass(frozen=True)
class Doctor:
    """Which parts a model has, whether its input is right, and which methods fit it."""

    model: str
    """package.module:factory or path/to/file.py:factory. The factory takes no arguments and
    returns the model; a model itself will do too."""
    images: Path | None = None
    """Clean images as you would feed them: an .npz file with `images`, or an .npy file."""
    head: str | None = None
    """Name of the layer that maps features to logits; by itself, the last linear layer."""
    batch_size: int = 64
    """Batch size of the stream to come."""

    def run(self) -> None:
        images = None if self.images is None else read_images(self.images)
        model = find_model(self.model)
        show(holdfast.doctor(model, images, batch_size=self.batch_size, head=self.head))


@dataclass(frozen=True)
class Methods:
    """All methods, one a line."""

    def run(self) -> None:
        show(methods_table())


@dataclass(frozen=True)
class Card:
    """All about one method or composition: what it does, costs and needs, and its settings."""

    method: tyro.conf.Positional[str]
    """As in eata, eata+debias, or 'tent(lr=0.001)+debias'."""
    preset: str | None = None
    """cifar100-c or imagenet-c: a paper's settings to the letter."""

    def run(self) -> None:
        show(card(self.method, self.preset))


Command = (
    Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Methods, tyro.conf.subcommand("methods")]
    | Annotated[Card, tyro.conf.subcommand("card")]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 2 where its user made a mistake."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"holdfast {holdfast.__version__}")
        return 0
    summary = (holdfast.__doc__ or "").partition("\n")[0]
    command = tyro.cli(Command, prog="holdfast", args=arguments, description=summary)
    try:
        command.run()
    except (ValueError, OSError) as error:
        print("holdfast:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0


def find_model(place: str) -> nn.Module:
    """The model at `package.module:factory` or `path/to/file.py:factory`."""
    where, colon, name = place.rpartition(":")
    if not (where and colon and name):
        raise ValueError(
            f"--model is package.module:factory or path/to/file.py:factory, not {place!r}."
        )
    module = _import(where)
    try:
        found = operator.attrgetter(name)(module)
    except AttributeError:
        names = [each for each in vars(module) if not each.startswith("_")]
        raise ValueError(
            f"{where} has no {name!r}.{nearest(name, names)} It has {listed(names) or 'nothing'}."
        ) from None
    if not isinstance(found, nn.Module) and callable(found):
        try:
            found = found()
        except Exception as error:
            raise ValueError(f"{place}() failed: {type(error).__name__}: {error}") from error
    if not isinstance(found, nn.Module):
        raise ValueError(f"{place} gives {type(found).__name__}, not a torch.nn.Module.")
    return found


def _import(where: str) -> ModuleType:
    """A module by its name or its file, with the current folder on the path."""
    _add_to_path(Path.cwd())
    file = Path(where) if where.endswith(".py") else None
    if file is not None and not file.is_file():
        raise ValueError(f"There is no file {where}.")
    try:
        return importlib.import_module(where) if file is None else _run_file(file)
    except Exception as error:
        raise ValueError(f"Cannot import {where}: {type(error).__name__}: {error}") from error


def _run_file(file: Path) -> ModuleType:
    _add_to_path(file.resolve().parent)
    # Under a name of its own, so that a file called torch.py hides nothing.
    spec = importlib.util.spec_from_file_location(f"file_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def read_images(path: Path) -> Tensor:
    """Some images of an .npz or .npy file, as floats, (batch, channels, height, width)."""
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError, BadZipFile):
        raise ValueError(f"{path} is not an .npz or .npy file of numbers.") from None
    if isinstance(array, np.lib.npyio.NpzFile):
        with array as arrays:
            if "images" not in arrays:
                raise ValueError(f"{path} has no array 'images'; it has {listed(arrays.files)}.")
            array = arrays["images"]
    if array.ndim < 2 or (array.dtype != np.uint8 and array.dtype.kind != "f"):
        raise ValueError(
            f"{path} holds {array.dtype} of shape {array.shape}; expected images, uint8 or float, "
            "of shape (batch, height, width, channels) or (batch, channels, height, width)."
        )
    # Spread over the file, which may be sorted by class.
    some = array[:: max(1, len(array) // ENOUGH)][:ENOUGH]
    images = torch.from_numpy(some.astype(np.float32))
    if array.dtype == np.uint8:
        images = images / 255
    if images.ndim == 4 and images.shape[-1] in (1, 3):
        images = images.permute(0, 3, 1, 2)
    return images
