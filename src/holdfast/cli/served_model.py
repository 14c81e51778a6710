"""The model that `holdfast serve` is told to serve, what is known of its source, and a method that
both allow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from holdfast.bench.kept import has_features, without_health
from holdfast.bench.materials import SOURCES, Materials
from holdfast.bench.opening import shuffled
from holdfast.bench.options import DRIFTED_IMAGES
from holdfast.bench.plan import Run
from holdfast.bench.shown import MODELS
from holdfast.data.holdout import drifted
from holdfast.data.images import Images
from holdfast.engine.network import fingerprint, logits_of
from holdfast.engine.norms import batch_norms
from holdfast.source.source import Source
from holdfast.util.files import text_hash
from holdfast.util.words import first_line

# Side of images where nothing tells it.
SIDE = 224
IMAGES = 10_000


@dataclass(frozen=True)
class ServedModel:
    """side: of the images it takes. classes: how many it knows. images: labelled ones of its
    source, where there are any. validation: others, which it was not trained on."""

    model: nn.Module
    side: int
    classes: int
    images: Images | None
    validation: Images | None


def open_model(run: Run, materials: Materials) -> ServedModel:
    if run.model.name is None and run.data.name not in MODELS:
        raise ValueError(
            f"Which model of {run.data.name} is to be served? Pass --model, such as "
            "resnet20:path/to/weights.safetensors or package.module:factory."
        )
    model = materials.model(run)
    images = _source_images(run, materials)
    found = None if images is None else int(images.image(0).shape[-1])
    if run.data.size is not None and found not in (None, run.data.size):
        raise ValueError(
            f"--size {run.data.size} is not that of the source images, {found}: leave it out."
        )
    side = run.data.size or found or SIDE
    classes = _classes(model, side, run.machine.device)
    return ServedModel(model, side, classes, images, materials.validation_images(run))


def _source_images(run: Run, materials: Materials) -> Images | None:
    """None where none are known, or a saved source was given in their place."""
    embedded = run.model.name is None and run.data.name in MODELS
    given = run.model.source
    if (given or "").endswith(".safetensors") and not embedded:
        return None
    # A model of one's own was not trained on the images of the embedded one.
    if given is None and not embedded and run.data.name not in SOURCES.keys() - MODELS.keys():
        return None
    return materials.source_images(run)


def _classes(model: nn.Module, side: int, device: str) -> int:
    try:
        with torch.no_grad():
            return int(logits_of(model(torch.rand(2, 3, side, side, device=device))).shape[1])
    except Exception as error:  # whatever a model may raise
        raise ValueError(
            f"The model fails on images of 3×{side}×{side} ({first_line(error)}): pass --size, the "
            "side of the images that it takes."
        ) from error


def open_source(run: Run, served: ServedModel, folder: Path) -> tuple[Source | None, Path | None]:
    """What is known of the source, and where to keep it, so that a restart has the same."""
    given, head, images = run.model.source, run.model.head, served.images
    calibrated_on = images if served.validation is None else served.validation
    under_drift = None
    if calibrated_on is not None:
        under_drift = drifted(shuffled(calibrated_on), images=DRIFTED_IMAGES)
    if given is not None and given.endswith(".safetensors"):
        source = Source.load(given, drifted=under_drift)
        if served.validation is not None:  # the file may have been calibrated on other images
            source.tensors = without_health(source.tensors)
        return source, None
    if images is None or not can_have_source(served, head, run.machine.device):
        return None, None
    model = fingerprint(served.model)
    made_of = [given or run.data.name, run.data.size, head, len(images)]
    if run.watch.validation is not None:
        made_of.append(run.watch.validation)
    path = folder / "sources" / f"{model[:12]}-{text_hash(repr(tuple(made_of)))[:12]}.safetensors"
    loader = shuffled(images, IMAGES)
    if path.is_file():
        return Source.load(path, loader, drifted=under_drift), path
    found = Source.from_loader(served.model, loader, IMAGES, drifted=under_drift, head=head)
    return found, path


def can_have_source(served: ServedModel, head: str | None, device: str) -> bool:
    return has_features(served.model, head, torch.rand(2, 3, served.side, served.side).to(device))


def usual_method(served: ServedModel, source: Source | None, head: str | None, device: str) -> str:
    """What to begin with: as `doctor` recommends, as far as what is known allows."""
    headed = can_have_source(served, head, device)
    if source is None:
        return "eta+debias(lambda_src=0)" if headed else "tent"
    return "eata+debias+steady" if batch_norms(served.model) else "eata+debias"


def keep_source(source: Source | None, path: Path | None) -> None:
    """With all that the method asked for."""
    if source is not None and path is not None:
        known = Source.load(path).tensors.keys() if path.is_file() else set()
        if not source.tensors.keys() <= known:
            source.save(path)
