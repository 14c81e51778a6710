"""The model that `holdfast serve` is told to serve, what is known of its source, and a method that
both allow."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from holdfast.bench.kept import has_features, without_health
from holdfast.bench.materials import SOURCES, Materials, source_file
from holdfast.bench.opening import check_labels_known, check_not_the_source, shuffled
from holdfast.bench.options import DRIFTED_IMAGES
from holdfast.bench.plan import Run
from holdfast.bench.shown import MODELS
from holdfast.data.cache import fingerprint as data_fingerprint
from holdfast.data.holdout import drifted
from holdfast.data.images import Images
from holdfast.engine.network import fingerprint, logits_of
from holdfast.engine.norms import batch_norms
from holdfast.source.source import Source
from holdfast.util.files import file_hash, text_hash
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
    images, validation = _source_images(run, materials), materials.validation_images(run)
    like = validation if images is None else images
    found = None if like is None else int(like.image(0).shape[-1])
    if run.data.size is not None and found not in (None, run.data.size):
        raise ValueError(
            f"--size {run.data.size} is not that of the images given, {found}: leave it out."
        )
    side = run.data.size or found or SIDE
    classes = _classes(model, side, run.machine.device)
    if validation is not None:
        _check_validation(run, validation, images, side, classes)
    return ServedModel(model, side, classes, images, validation)


def _check_validation(
    run: Run, validation: Images, source: Images | None, side: int, classes: int
) -> None:
    option = f"--validation {run.watch.validation}"
    own = int(validation.image(0).shape[-1])
    if own != side:
        raise ValueError(
            f"{option} has images of side {own}, and the model is served images of side {side}: "
            "give images of that side, or --size."
        )
    check_labels_known(validation, classes, option)
    if source is not None:
        check_not_the_source(data_fingerprint(validation), data_fingerprint(source), option)


def _source_images(run: Run, materials: Materials) -> Images | None:
    """None where none are known, or a saved source was given in their place."""
    embedded = run.model.name is None and run.data.name in MODELS
    given = run.model.source
    if source_file(run) is not None:
        # Of the embedded model's, images tell the side all the same.
        return materials.clean_set(run, SOURCES[run.data.name], "train") if embedded else None
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
    file, head = source_file(run), run.model.head
    images, validation = served.images, served.validation
    calibrated_on = images if validation is None else validation
    under_drift = None
    if calibrated_on is not None:
        under_drift = drifted(shuffled(calibrated_on), images=DRIFTED_IMAGES)
    loader = None if images is None else shuffled(images, IMAGES)
    if file is not None and validation is None:
        return Source.load(file, loader, drifted=under_drift), None
    if file is None and (images is None or not can_have_source(served, head, run.machine.device)):
        if validation is not None:
            raise ValueError(
                "--validation calibrates estimates of health, which also go by what is known of "
                "the model's training: pass --source, training images or a saved Source, and with "
                "it a model whose logits are a layer's output (--head names it)."
            )
        return None, None
    made_of = [run.data.size, head, *map(_hash_of, (file or images, validation))]
    name = text_hash(repr(made_of))
    path = folder / "sources" / f"{fingerprint(served.model)[:12]}-{name[:12]}.safetensors"
    if path.is_file():
        return Source.load(path, loader, drifted=under_drift), path
    if file is not None:
        source = Source.load(file, loader, drifted=under_drift)
        # What it holds of health was calibrated on other images.
        source.tensors = without_health(source.tensors)
        return source, path
    assert loader is not None
    found = Source.from_loader(served.model, loader, IMAGES, drifted=under_drift, head=head)
    return found, path


def _hash_of(given: Path | Images | None) -> str | None:
    """Of what a file or a set of images holds: another of the same name is another."""
    if given is None:
        return None
    return file_hash(given) if isinstance(given, Path) else data_fingerprint(given)


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
