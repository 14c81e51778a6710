"""What most people call: `adapt` a model, `load` a saved adapter."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from torch import nn

from holdfast.engine.adapter import KIND, Adapter
from holdfast.engine.checks import InputRange
from holdfast.engine.health import Guard, HealthOptions
from holdfast.engine.network import MemoryFormat, fingerprint
from holdfast.engine.options import Options, Precision
from holdfast.recipes.base import Method
from holdfast.recipes.compose import Composition, compose, parse
from holdfast.recipes.registry import find_loaded
from holdfast.source.contents import check_contents
from holdfast.source.source import Source
from holdfast.util import files
from holdfast.util.words import enumerated, first_line, listed


def adapt(
    model: nn.Module,
    *method: str | Method | Composition,
    source: Source | None = None,
    preset: str | None = None,
    seed: int = 0,
    head: str | None = None,
    input_range: InputRange = (0.0, 1.0),
    window: int | None = None,
    memory_format: MemoryFormat = "auto",
    compile: bool = False,
    precision: Precision | None = None,
    guard: Guard = "alarm",
    health: HealthOptions | None = None,
    rollback: bool = False,
) -> Adapter:
    """A model that adapts to its stream: `adapt(model, "eata+debias", source=source)`.

    method: a spec string, or typed values such as `Eata(lr=1e-3), Debias()`; or one composition, as
        `compose` gives it.
    source: what is known of the source data, where the method needs it.
    preset: "cifar100-c" or "imagenet-c", a paper's settings to the letter; None serves your model.
    seed: of the adapter's own randomness.
    head: name of the layer that maps features to logits; default: the last `nn.Linear`.
    input_range: where images must lie; None: anywhere.
    window: normalise and learn over the last so many images, and predict the newest.
    memory_format: "auto" is channels_last for convolutional nets, contiguous for others.
    compile: run the network through `torch.compile`.
    precision: "bfloat16" or "float16" for forwards by autocast; None follows the caller's autocast.
    guard: what is done when health turns bad (adapting does harm, or predictions collapse).
        "alarm": warn; "none": nothing; "rollback": go back to the last healthy state, and go on
        from there; "fallback": go back, and have the source model answer until that state is as
        good again.
    health: how health is watched; `HealthOptions` has the defaults.
    rollback: the same as guard="rollback".

    The model itself is never changed.

    >>> import torch, holdfast
    >>> from holdfast.models import resnet20
    >>> adapter = holdfast.adapt(resnet20(10), "tent(lr=0.001)")
    >>> logits = adapter(torch.rand(8, 3, 32, 32))
    >>> adapter.last.stepped
    True
    """
    options = Options(
        seed=seed,
        head=head,
        input_range=input_range,
        window=window,
        memory_format=memory_format,
        compile=compile,
        precision=precision,
        guard="rollback" if rollback and guard == "alarm" else guard,
        health=HealthOptions() if health is None else health,
    )
    return Adapter(model, composition_of(method, preset), source, options)


def composition_of(
    parts: tuple[str | Method | Composition, ...], preset: str | None
) -> Composition:
    """What `adapt` was given as its method."""
    if not any(isinstance(part, Composition) for part in parts):
        return compose(*cast(Any, parts), preset=preset)
    if len(parts) > 1 or preset is not None:
        raise ValueError(
            "A composition comes alone, since its settings are resolved: name plug-ins and preset "
            "where it is made, as in compose('eata+debias', preset='cifar100-c')."
        )
    return cast(Composition, parts[0])


# What stands in the header of a state file, beside what was left out.
HEADER: Mapping[str, files.Types] = {
    "model": str,
    "method": str,
    "options": dict,
    "head": str | None,
    "fisher_samples": int | None,
}


def _options(path: str | Path, saved: dict[str, Any]) -> Options:
    """The options of a saved adapter; one that an older version did not have is as without it."""
    known = [field.name for field in fields(Options)] + ["rollback"]
    if unknown := [name for name in saved if name not in known]:
        raise ValueError(
            f"{path} has options that this holdfast does not know ({listed(unknown)}): use the "
            "holdfast that wrote it, or adapt() anew."
        )
    return Options.from_file(saved)


def load(path: str | Path, model: nn.Module, source: Source | None = None) -> Adapter:
    """Go on from a saved adapter, with the model it was made from.

    source: only for what a file does not hold, such as replay images.

    A file that was saved with images=False has no window and no memory: a warning says so, they
    fill anew, and until they are full the adapter goes on otherwise than the one that was saved.

    >>> import torch, holdfast
    >>> from holdfast.models import resnet20
    >>> model, images = resnet20(10), torch.rand(8, 3, 32, 32)
    >>> adapter = holdfast.adapt(model, "tent")
    >>> adapter.save("camera.safetensors")
    >>> torch.equal(adapter(images), holdfast.load("camera.safetensors", model)(images))
    True
    """
    header, tensors = files.read(path, KIND)
    files.check_header(path, header, HEADER)
    model_hash = fingerprint(model)
    if header["model"] != model_hash:
        raise ValueError(
            f"{path} was saved from another model: its weights were {header['model'][:12]}…, "
            f"this model's are {model_hash[:12]}…. Load it with the model given to adapt()."
        )
    of_source = files.under("source/", tensors)
    try:
        check_contents(of_source, whole=False)
    except ValueError as error:
        raise ValueError(f"{path}, of its source: {error}: adapt() anew.") from None
    try:
        method = compose(*parse(header["method"], find_loaded))
    except ValueError as error:
        raise ValueError(
            f"{path} was saved with a method that cannot be had here: {error}"
        ) from error
    if source is not None:
        source.check_model(model_hash)
        source = source.holding(of_source, header["fisher_samples"])
    elif of_source:
        source = Source(
            model_hash, of_source, head=header["head"], fisher_samples=header["fisher_samples"]
        )
    if "replay" in method.needs and (source is None or source.loader is None):
        raise ValueError(
            f"{method.names} replays source images, which {path} does not hold: pass "
            "source=holdfast.Source.load(path, loader=…), or the source given to adapt()."
        )
    adapter = Adapter(model, method, source, _options(path, header["options"]))
    try:
        adapter.restore(tensors)
    except (KeyError, IndexError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} does not hold the state of {method.names} as it is here "
            f"({type(error).__name__}: {first_line(error)}): load it with the code that saved it, "
            "or adapt() anew."
        ) from error
    if left_out := header.get("left_out"):
        warnings.warn(
            f"{path} was saved without images: {enumerated(left_out)} of {method.names} begin "
            "empty and fill anew. What was learnt is all there.",
            stacklevel=2,
        )
    return adapter
