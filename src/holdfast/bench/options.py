"""What can be said of a run: each option once, with its name, its help and what it decides.

Derived from that: the command line, the keys of a sweep, the manifest's entry `run`, the
fingerprint, "how it was run" and "may these be compared". A new option is a new field here, and
whatever uses it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from holdfast.engine.health import Estimator, Guard
from holdfast.engine.options import Precision
from holdfast.util.words import listed, nearest

if TYPE_CHECKING:
    from typing_extensions import Self

# images      which images come, and which model sees them: runs that differ are not compared
# method      what is done with them: runs that differ are compared, each under its own label
# rounding    the last digits: as `method`, but a paper's numbers may stand beside it
# repetition  another run of the same: its seed, and whether more is measured
# nothing     no number: where files lie, how fast they are read
Decides = Literal["images", "method", "rounding", "repetition", "nothing"]

# Where a fingerprint holds it in another form: as a part of the stream or the method with all
# settings resolved, or in the hash of the model.
ToldBy = Literal["stream", "method", "model"]

SEVERITY = 5
# How many images of each kind of drift estimates of health are calibrated on.
DRIFTED_IMAGES = 256


def option(
    default: object,
    help: str,
    decides: Decides,
    told_by: ToldBy | None = None,
    aliases: tuple[str, ...] = (),
    **names: str,
) -> Any:
    """A field of the options of a run, with what else `Option` knows of it by name."""
    known = {"help": help, "decides": decides, "told_by": told_by, "aliases": aliases}
    return field(default=default, metadata={**known, **names})


@dataclass(frozen=True)
class DataOptions:
    """The images; all but the name are arguments of `holdfast.data.readers.sets.open_data`."""

    name: str = option(
        "glyphs-c",
        "glyphs-c, the embedded benchmark; cifar10-c, cifar100-c, imagenet-c; a folder in one of "
        "their layouts; a clean set, which is corrupted as it is read (an .npz file, a folder of "
        "classes).",
        "images",
        flag="data",
    )
    root: str | None = option(
        None, "Where sets lie.", "nothing", usual="$HOLDFAST_DATA, else the folder data"
    )
    severity: int = option(SEVERITY, "Of corruptions, 1 to 5.", "images")
    images: str | None = option(
        None,
        "A file that names some of a folder's images, one class/file a line.",
        "images",
        title="list of images",
    )
    classes: str | None = option(
        None,
        "A file that names the classes in order, one a line.",
        "images",
        title="list of classes",
    )
    frost: str | None = option(
        None, "Folder with the original frost textures.", "images", title="frost textures"
    )
    size: int | None = option(
        None, "Side that images of folders are resized and cropped to.", "images", usual="224"
    )


@dataclass(frozen=True)
class ModelOptions:
    """The model that sees the images, and what is known of its training."""

    name: str | None = option(
        None,
        "glyphs; NAME:WEIGHTS with a network of ours, such as resnet20:weights.safetensors; "
        "torchvision:NAME; timm:NAME; package.module:factory.",
        "images",
        usual="what comes with the data",
        flag="model",
    )
    mean: str | None = option(
        None,
        "Of the input normalisation that the model's weights were trained with, as in "
        "0.485,0.456,0.406.",
        "images",
        "model",
        usual="that of the network's public weights",
    )
    std: str | None = option(None, "The same, of the standard deviation.", "images", "model")
    head: str | None = option(
        None,
        "Name of the model's layer that maps features to logits.",
        "images",
        usual="the last linear one",
    )
    source: str | None = option(
        None,
        "Training images of the model (a clean set), or a saved Source; where a method needs it.",
        "method",
        usual="what belongs to the data",
    )
    precision: Precision | None = option(
        None, "Of forward passes, by autocast.", "method", usual="the model's own"
    )


@dataclass(frozen=True)
class StreamOptions:
    """The order in which images come, and how many of them at a time."""

    spec: str = option(
        "continual",
        "continual, gradual, mixed, correlated(gamma=0.1), recurring(visits=20), switching, "
        "single, paced, labelshift, noisy, endless: the kind of drift, with its settings; "
        "`holdfast streams` and `holdfast card STREAM` show them.",
        "images",
        "stream",
        flag="stream",
    )
    domains: str | None = option(
        None,
        "Which domains come, in this order, as in fog,snow; clean images only where original is "
        "among them.",
        "images",
        "stream",
        usual="the stream's own",
    )
    limit: int | None = option(
        None,
        "Most images of each domain, evenly picked. In gradual, at each severity; in recurring "
        "and switching, each time it comes; in noisy, and as many intruders; in endless, times "
        "the number of corruptions, for the whole stream.",
        "images",
        "stream",
        usual="all",
    )
    batch: int | None = option(
        None, "Images in a batch.", "images", "stream", ("--batch-size",), usual="the stream's 64"
    )
    window: int | None = option(
        None,
        "Have methods see the latest so many images at once, where batches are small; 0: none, "
        "for methods that take single images.",
        "method",
        usual="64 where batches are single images, else none",
    )
    intruders: str | None = option(
        None,
        "A clean set of images that belong to no class, for the stream noisy(kind=other).",
        "images",
    )


@dataclass(frozen=True)
class WatchOptions:
    """How health is watched, without labels, and what is done when it turns bad."""

    health: bool = option(
        True,
        "Estimate accuracy and drift without labels, and record them.",
        "repetition",
        usual="where the model's training images are known",
    )
    guard: Guard = option(
        "alarm",
        "When adapting does harm, or predictions collapse: alarm tells; none does nothing; "
        "rollback goes back to the last healthy state; fallback goes back, and the source model "
        "answers meanwhile.",
        "method",
    )
    validation: str | None = option(
        None,
        "Labelled clean images that the model was not trained on, to calibrate estimates on; "
        f"{DRIFTED_IMAGES} are enough.",
        "method",
        usual="those of --source",
        title="health calibrated on",
    )
    estimator: Estimator = option(
        "agreement",
        "Of accuracy: agreement with the source model, and drift; doc, difference of confidences; "
        "atc, average thresholded confidence; aetta, disagreement under dropout.",
        "method",
    )
    every: int | None = option(
        None,
        "Measure health every so many batches.",
        "method",
        usual="8, and 1 with --guard fallback",
        title="health measured every",
    )
    level: float = option(
        0.05,
        "The chance that the alarm ever rings on a stream without drift.",
        "method",
        title="level of the alarm",
    )


@dataclass(frozen=True)
class MachineOptions:
    """What computes."""

    device: str = option(
        "cpu", "As torch names it.", "rounding", usual="cuda where there is one, else cpu"
    )
    threads: int = option(1, "Of the processor.", "rounding", usual="one for each core")
    workers: int = option(0, "Processes that read images ahead.", "nothing", usual="0, none")


@dataclass(frozen=True)
class RunOptions:
    """All that can be said of a run."""

    method: str
    """A spec string, such as eata+debias."""
    data: DataOptions = DataOptions()
    model: ModelOptions = ModelOptions()
    stream: StreamOptions = StreamOptions()
    watch: WatchOptions = WatchOptions()
    machine: MachineOptions = MachineOptions()
    preset: str | None = option(
        None,
        "cifar100-c or imagenet-c: a paper's settings to the letter.",
        "method",
        "method",
        usual="settings for a model of your own",
    )
    seed: int = option(
        0,
        "The first seed: of the order of images, and of the method's own randomness.",
        "repetition",
    )
    analysis: bool = option(
        False,
        "Also the paper's distances between features of classes; one more forward a batch.",
        "repetition",
        usual="no",
    )
    tags: tuple[str, ...] = ()
    """What a reader should know of how it came to be, such as "chosen with labels"."""

    @classmethod
    def of(cls, method: str, *, tags: tuple[str, ...] = (), **flags: object) -> Self:
        """By flags, which are flat: `Run.of("eata", data="cifar10-c", batch=16)`."""
        return cls(method=method, tags=tags, **nested(flags))

    @property
    def flat(self) -> dict[str, Any]:
        """What `of` takes, and a manifest holds."""
        given = {opt.flag: opt.value_in(self) for opt in OPTIONS.values()}
        return {"method": self.method, **given, "tags": self.tags}


@dataclass(frozen=True)
class Option:
    """What is known of an option, and where its value stands in a run's options.

    flag: its name where options are flat, such as on the command line; without it, the field's.
    usual: the default in words; without it, the value where there is one.
    title: what a reader of a report sees it called; without it, the flag.
    """

    group: str
    field: str
    hint: Any
    default: Any
    help: str
    decides: Decides
    told_by: ToldBy | None
    aliases: tuple[str, ...]
    flag: str
    usual: str
    title: str

    def value_in(self, run: RunOptions) -> Any:
        return getattr(getattr(run, self.group) if self.group else run, self.field)


def _options(cls: type, group: str = "") -> dict[str, Option]:
    """The options of a class by flag, those of its groups among them."""
    options: dict[str, Option] = {}
    hints = get_type_hints(cls)
    for item in fields(cls):
        if is_dataclass(hints[item.name]):
            options |= _options(hints[item.name], item.name)
        elif item.metadata:
            flag = item.metadata.get("flag", item.name)
            usual = "" if item.default is None else str(item.default)
            known = {"flag": flag, "title": flag, "usual": usual, **item.metadata}
            options[flag] = Option(group, item.name, hints[item.name], item.default, **known)
    return options


OPTIONS = _options(RunOptions)


def kind_of(hint: Any) -> Any:
    """The type of a value that is not None, or the words to choose from."""
    if get_origin(hint) is Literal:
        return hint
    return next(kind for kind in get_args(hint) or (hint,) if kind is not NoneType)


def nested(flags: Mapping[str, object]) -> dict[str, Any]:
    """Options by flag as the arguments of `RunOptions`."""
    groups: dict[str, dict[str, Any]] = defaultdict(dict)
    for flag, value in flags.items():
        if flag not in OPTIONS:
            raise ValueError(
                f"A run has no option {flag!r}.{nearest(flag, OPTIONS)} Options: "
                f"{listed(OPTIONS, 99)}."
            )
        groups[OPTIONS[flag].group][OPTIONS[flag].field] = value
    kinds = get_type_hints(RunOptions)
    return groups.pop("", {}) | {group: kinds[group](**values) for group, values in groups.items()}
