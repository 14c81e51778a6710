"""The manifest of a run: all that a reader needs to believe its numbers, or to repeat it."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import torch
from torch import nn

import holdfast
from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.explain.card import card
from holdfast.models.normalization import Normalized
from holdfast.util import files

FORMAT = 1

LIBRARIES = ("torch", "numpy", "kornia", "polars", "safetensors")

Metrics: TypeAlias = dict[str, int | float | None]
"""By name, as `Recorder.summary` has them; None: not defined."""

# Limits on what a file may claim: more classes would take all memory, and no stream is as long as
# the second.
Classes: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=10**15)]


class SettingValue(msgspec.Struct, frozen=True, rename={"origin": "from"}):
    """A setting of a method, and where its value comes from."""

    value: bool | int | float | str | None = None
    origin: str = ""


# The file says "figures", as that of 0.1.0 does.
class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename={"metrics": "figures"}):
    """What manifest.json says. What an older version did not write has a default."""

    classes: Classes
    fingerprint: str = ""
    title: str = ""
    """The method as it was written."""
    run: dict[str, Any] = {}
    """The run's options by their names on the command line."""
    method: str = ""
    """With every setting resolved."""
    settings: dict[str, dict[str, SettingValue]] = {}
    """By method and name."""
    uncorrected: bool = False
    """Whether the method corrects logits into scores that are no log-probabilities, so that
    confidence and entropy are of the logits before."""
    stream: str = "unknown"
    """With every setting resolved."""
    order: list[str] = []
    """The domains as they come."""
    batches: Count = 0
    images: Count = 0
    hashes: dict[str, str | None] = {}
    normalisation: dict[str, list[float]] | None = None
    versions: dict[str, str] = {}
    machine: dict[str, Any] = {}
    command: str = ""
    time_started: str = ""
    time_finished: str = ""
    format: int = FORMAT
    finished: bool = False
    metrics: Metrics = {}

    @property
    def tags(self) -> tuple[str, ...]:
        """What a reader should know of how the run came to be."""
        tags = self.run.get("tags")
        return tuple(map(str, tags)) if isinstance(tags, list | tuple) else ()

    @property
    def code(self) -> str:
        """The hash of the code that made the run; older manifests do not say."""
        return self.hashes.get("code") or "unknown"

    @property
    def own_code(self) -> dict[str, str | None]:
        """The hashes of files that did not come with holdfast: of methods, and of the model."""
        own = ("method ", "model file")
        return {name: value for name, value in self.hashes.items() if name.startswith(own)}


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.json, or raise a ValueError that says why it is none."""
    try:
        manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        why = re.sub(r" - at `\$\.?(.*)`", r" as `\1`", str(error)).removesuffix(" as ``")
        raise ValueError(
            f"{path} is not a manifest that can be read: {why}. Delete its folder, or run it again "
            "with --again."
        ) from None
    if manifest.format != FORMAT:
        raise ValueError(
            f"{path} has format {manifest.format}, and this holdfast reads format {FORMAT}: use "
            "the holdfast that wrote it, or run it again."
        )
    return manifest


def write_manifest(path: Path, manifest: Manifest) -> None:
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    files.write_whole(path, lambda part: part.write_bytes(text + b"\n"))


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def describe(run: Run, materials: Materials) -> Manifest:
    """The manifest of a run that is about to begin."""
    flow, hashes = materials.flow(run), materials.hashes(run)
    classes = materials.classes(run)
    return Manifest(
        fingerprint=run.fingerprint(hashes),
        title=run.title,
        run=run.as_used,
        method=run.composition.for_classes(classes).named_spec,
        settings={
            part.name: {
                setting.name: SettingValue(setting.value, setting.origin)
                for setting in part.settings
            }
            for part in card(run.methods, run.preset, classes).parts
        },
        uncorrected=not all(method.keeps_probabilities() for method in run.composition.methods),
        stream=str(run.resolved_stream),
        order=list(run.shown),
        batches=len(flow),
        images=flow.samples,
        classes=classes,
        hashes=hashes,
        normalisation=normalisation(materials.model(run)),
        versions={
            "holdfast": holdfast.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in LIBRARIES},
        },
        machine=machine(run.machine.device),
        command=shlex.join(["holdfast", *sys.argv[1:]]),
        time_started=now(),
    )


def normalisation(model: nn.Module) -> dict[str, list[float]] | None:
    """Mean and standard deviation by channel that the model itself takes off its input."""
    for module in model.modules():
        if isinstance(module, Normalized):
            return {"mean": module.mean.flatten().tolist(), "std": module.std.flatten().tolist()}
    return None


def machine(device: str) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "device": device,
    }
    if device.startswith("cuda"):
        facts["device_name"] = torch.cuda.get_device_name(torch.device(device))
    return facts
