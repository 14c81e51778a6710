"""The command line: `holdfast run`, `paper`, `sweep`, `report`, `data`, `doctor`, `card` …"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zipfile import BadZipFile

import tyro

import holdfast
from holdfast.bench.cli import Run
from holdfast.bench.paper_cli import Paper
from holdfast.bench.sweep_cli import Sweep
from holdfast.data.cli import Data
from holdfast.report.cli import Report
from holdfast.terminal import show
from holdfast.words import listed

# Help and mistakes are told before torch and the rest are there: here, and where the commands
# are, a module at the top is a quick one, and what a command needs is imported as it runs.
if TYPE_CHECKING:
    from torch import Tensor

# As many images of a file as the doctor looks at, or a few more.
ENOUGH = 256


@dataclass(frozen=True)
class Doctor:
    """Which parts a model has, whether its input is right, and which methods fit it."""

    model: str
    """package.module:factory or path/to/file.py:factory, where the factory takes no arguments and
    returns the model (a model itself will do too); torchvision:NAME or timm:NAME; or a network of
    ours with its weights, as in resnet20:path/to/weights.safetensors."""
    images: Path | None = None
    """Clean images as you would feed them: an .npz file with `images`, or an .npy file."""
    head: str | None = None
    """Name of the layer that maps features to logits; by itself, the last linear layer."""
    batch_size: int = 64
    """Batch size of the stream to come."""
    method: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(aliases=["-m"])
    ] = ()
    """Only these methods, as `run` takes them; once for each. Default: all that have a name."""

    def run(self) -> None:
        from holdfast.nets.find import find_model

        images = None if self.images is None else read_images(self.images)
        model = find_model(self.model)
        found = holdfast.doctor(
            model, images, batch_size=self.batch_size, head=self.head, method=self.method
        )
        show(found)


@dataclass(frozen=True)
class Methods:
    """All methods, one a line."""

    def run(self) -> None:
        from holdfast.explain.card import methods_table

        show(methods_table())


@dataclass(frozen=True)
class Streams:
    """All kinds of stream, one a line."""

    def run(self) -> None:
        from holdfast.explain.stream_card import streams_table

        show(streams_table())


@dataclass(frozen=True)
class Card:
    """All about one method or composition, or one kind of stream: what it does, what it costs and
    needs, and its settings."""

    name: tyro.conf.Positional[str]
    """A method, as in eata, eata+debias, or 'tent(lr=0.001)+debias', or one of your own,
    path/to/file.py:Class or package.module:Class; or a stream, as in correlated or
    'correlated(gamma=1)'."""
    preset: str | None = None
    """cifar100-c or imagenet-c: a paper's settings to the letter."""

    def run(self) -> None:
        from holdfast.explain.stream_card import find_card

        show(find_card(self.name, self.preset))


Command = (
    Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Paper, tyro.conf.subcommand("paper")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Methods, tyro.conf.subcommand("methods")]
    | Annotated[Streams, tyro.conf.subcommand("streams")]
    | Annotated[Card, tyro.conf.subcommand("card")]
    | Annotated[Data, tyro.conf.subcommand("data")]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 2 where its user made a mistake."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"holdfast {holdfast.__version__}")
        return 0
    summary = (holdfast.__doc__ or "").partition("\n")[0]
    command = tyro.cli(
        Command,
        prog="holdfast",
        args=arguments,
        description=summary,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )
    try:
        command.run()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError) as error:
        print("holdfast:", " ".join(str(error).split()), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("holdfast: stopped.", file=sys.stderr)
        return 130
    return 0


def read_images(path: Path) -> Tensor:
    """Some images of an .npz or .npy file, as floats, (batch, channels, height, width)."""
    import numpy as np
    import torch

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
