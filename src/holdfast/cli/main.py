"""The command line: `holdfast run`, `rehearse`, `serve`, `export`, `paper`, `report`, `data` …"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

import holdfast
from holdfast.cli.data import Data
from holdfast.cli.export import Export
from holdfast.cli.options import Specs
from holdfast.cli.paper import Paper
from holdfast.cli.rehearse import Rehearse
from holdfast.cli.report import Report
from holdfast.cli.run import Run
from holdfast.cli.serve import Serve
from holdfast.cli.sweep import Sweep
from holdfast.util.cpu import tune_cpu
from holdfast.util.notices import plain_warnings
from holdfast.util.progress import progress
from holdfast.util.terminal import show

# Help and mistakes are told before torch and the rest are there: here, and where the commands
# are, a module at the top is a quick one, and what a command needs is imported as it runs.


@dataclass(frozen=True)
class Doctor:
    """Which parts a model has, whether its input is right, and which methods fit it."""

    model: str
    """package.module:factory or path/to/file.py:factory, where the factory takes no arguments and
    returns the model (a model itself will do too); torchvision:NAME or timm:NAME; or a network of
    ours with its weights, as in resnet20:path/to/weights.safetensors."""
    images: Path | None = None
    """Clean images as you would feed them: an .npz file with `images`, an .npy file, or a folder of
    images or of class folders. With `labels` in the file, or with as many class folders as the
    model has classes, accuracy tells which normalisation is right."""
    size: int | None = None
    """Side that images of a folder are resized and cropped to. Default: as they are, or 224 where
    they differ in size."""
    limit: int = 512
    """Images to look at, at most; more of them, with labels, tell more."""
    mean: str | None = None
    """Of the input normalisation that the weights were trained with, as in 0.485,0.456,0.406.
    Default: that of the network's public weights."""
    std: str | None = None
    """The same, of the standard deviation."""
    head: str | None = None
    """Name of the layer that maps features to logits. Default: the last linear layer."""
    batch_size: int = 64
    """Batch size of the stream to come."""
    method: Specs = ()
    """Only these methods, as `run` takes them; once for each. Default: all that have a name."""

    def run(self) -> None:
        from holdfast.explain.images import labels_for, read_images
        from holdfast.models.find import find_model
        from holdfast.models.normalization import parse_normalization

        normalization = parse_normalization(self.mean, self.std)
        sample = None if self.images is None else read_images(self.images, self.limit, self.size)
        model = find_model(self.model, normalization)
        labels = None if sample is None else labels_for(model, sample)
        if sample is not None and sample.labels is not None and labels is None:
            print(f"{sample.classes} class folders are not the model's classes: no labels used.")
        found = holdfast.doctor(
            model,
            None if sample is None else sample.images,
            labels=labels,
            batch_size=self.batch_size,
            head=self.head,
            method=self.method,
        )
        show(found)


@dataclass(frozen=True)
class Confirm:
    """Does adapting on a device, such as a GPU, give what it gives on the CPU? Tried on the
    embedded benchmark, in a minute; the exit code is 1 where it does not."""

    device: str = "cuda"
    """As torch names it."""
    method: Specs = ()
    """As in eata+debias; once for each. Default: one of each way to learn and to predict."""

    def run(self) -> None:
        from holdfast.explain.confirm import METHODS, confirm

        methods = self.method or METHODS
        with progress("Confirming", len(methods)) as advance:
            found = confirm(self.device, methods, lambda method: advance(1))
        show(found)
        if not found.passed:
            raise SystemExit(1)


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
    Run
    | Rehearse
    | Serve
    | Export
    | Paper
    | Sweep
    | Report
    | Doctor
    | Confirm
    | Methods
    | Streams
    | Card
    | Data
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 2 where its user made a mistake."""
    tune_cpu()  # before a command loads torch
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"holdfast {holdfast.__version__}")
        return 0
    summary = (holdfast.__doc__ or "").partition("\n")[0]
    try:
        command = tyro.cli(
            Command,
            prog="holdfast",
            args=arguments,
            description=summary,
            config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
        )
        with plain_warnings():
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
