"""What is known of a run before its first batch, for its manifest."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from importlib.metadata import version
from typing import Any

import torch
from torch import nn

import holdfast
from holdfast.bench.manifest import Manifest, SettingValue
from holdfast.bench.materials import Materials
from holdfast.bench.plan import Run
from holdfast.bench.store import now
from holdfast.explain.card import card
from holdfast.models.normalization import Normalized

LIBRARIES = ("torch", "numpy", "kornia", "polars", "safetensors")


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
            part.name: {one.name: SettingValue(one.value, one.origin) for one in part.settings}
            for part in card(run.methods, run.preset, classes).parts
        },
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
        mean, std = getattr(module, "mean", None), getattr(module, "std", None)
        if isinstance(module, Normalized) and mean is not None and std is not None:
            return {"mean": mean.flatten().tolist(), "std": std.flatten().tolist()}
    return None


def machine(device: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "device": device,
    }
    if device.startswith("cuda"):
        found["device_name"] = torch.cuda.get_device_name(torch.device(device))
    return found
