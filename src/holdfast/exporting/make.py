"""From a plain module to a file that another runtime has run."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from holdfast.engine.checks import check_images
from holdfast.engine.export import ADVICE, NotExportable
from holdfast.exporting.compare import Difference, compare, split
from holdfast.exporting.exported import Exported, NotExportedError
from holdfast.exporting.format import Format, Opened
from holdfast.exporting.formats import find_format
from holdfast.exporting.place import check_free, put, trial
from holdfast.exporting.pt2 import precisions
from holdfast.util.words import enumerated, first_line

TOLERANCE = 1e-5
BATCH = 64


def export(
    module: nn.Module,
    path: str | Path,
    *,
    images: Tensor,
    to: str | None = None,
    tolerance: float = TOLERANCE,
    batch: int = BATCH,
    overwrite: bool = False,
) -> Exported:
    """Write a module, as `adapter.frozen()` gives it, into a file that takes any number of images;
    load it by the format's own runtime, and compare logits. A file that does not agree, or has
    another precision, is an error, and what lay there before stays.

    images: real ones, as the module takes them; `batch` + 4 of them are used.
    to: "pt2", "onnx", "openvino" or "executorch"; by default, what the path's ending says.
    tolerance: how far logits may be apart, as a share of the largest one (of 1, if that is larger).
    batch: the largest batch that is tried; of executorch, the largest that the file takes.
    overwrite: a file that is there may be replaced.

    >>> import torch, holdfast
    >>> from holdfast.exporting import export
    >>> from holdfast.models import resnet20
    >>> images = torch.rand(20, 3, 32, 32)
    >>> adapter = holdfast.adapt(resnet20(10), "tent")
    >>> logits = adapter(images)
    >>> export(adapter.frozen(), "model.pt2", images=images).largest
    0.0
    """
    path = Path(path)
    form = find_format(path, to)
    beside = form.beside(path)
    check_free((path, *beside), overwrite)
    _check(module, images, tolerance, batch)
    module = _copy(module, form)
    batches = split(_like(module, images), batch)
    expected = _logits(module, batches)
    program = _trace(module, batches[0].shape[1:], form.most(batch), form)
    with trial(path) as made:
        opened = _write(form, program, made)
        found = precisions(program)
        _refuse_other_precision(opened, found, form)
        difference = _compared(opened, batches, expected, form)
        if not difference.largest <= tolerance * difference.scale:  # not, so that NaN is none
            raise NotExportedError(_apart(difference, tolerance, form))
        usual = opened.usual
        if usual is not None and usual.precisions <= found:
            usual = None
        return Exported(
            path=path,
            to=form.name,
            shape=tuple(batches[0].shape[1:]),
            classes=expected[0].shape[1],
            sizes=tuple(map(len, batches)),
            precisions=tuple(sorted(opened.precisions)),
            difference=difference,
            tolerance=tolerance,
            loading=form.loading(path),
            most=form.most(batch),
            usual=None if usual is None else _compared(usual, batches, expected, form),
            usual_precisions=() if usual is None else tuple(sorted(usual.precisions)),
            files=put(made, path, beside),
        )


def _check(module: object, images: object, tolerance: float, batch: int) -> None:
    if isinstance(module, NotExportable):
        raise ValueError(f"{ADVICE[0].upper()}{ADVICE[1:]}.")
    if not isinstance(module, nn.Module):
        raise ValueError(f"A module is exported, not {type(module).__name__}.")
    if any(layer.training for layer in module.modules()):
        raise ValueError("The module is in training mode: export module.eval().")
    check_images(images, None, convolutional=False)
    if not 0 <= tolerance < float("inf"):
        raise ValueError(f"tolerance is a number from 0 on, not {tolerance}.")
    if batch < 2:
        raise ValueError(f"batch is a number of images, 2 or more, not {batch}.")


def _copy(module: nn.Module, form: Format) -> nn.Module:
    """Formats for other runtimes take weights in torch's usual order, on the processor."""
    module = copy.deepcopy(module)
    if form.as_given:
        return module
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data = tensor.data.cpu().contiguous()
    return module


def _like(module: nn.Module, images: Tensor) -> Tensor:
    """Images on the device and in the precision of a module's weights."""
    weights = (*module.parameters(), *module.buffers())
    weight = next((one for one in weights if one.is_floating_point()), None)
    return (images if weight is None else images.to(weight)).contiguous()


def _logits(module: nn.Module, batches: tuple[Tensor, ...]) -> list[Tensor]:
    try:
        with torch.no_grad():
            return [module(images) for images in batches]
    except Exception as error:  # whatever a model may raise
        sides = "×".join(map(str, batches[0].shape[1:]))
        raise ValueError(
            f"The module fails on images of {sides} ({first_line(error)}): give images as it takes "
            "them (--size on the command line)."
        ) from error


def _trace(
    module: nn.Module, shape: tuple[int, ...], most: int | None, form: Format
) -> ExportedProgram:
    # Not real images: a program keeps what it was traced with. Where batches are bounded, one of
    # the largest: ExecuTorch would else lay out memory for fewer.
    weight = _like(module, torch.zeros(most or 2, *shape))
    size = Dim("batch", min=1, max=most)
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(module, (weight,), dynamic_shapes=({0: size},))
    except Exception as error:  # of very many kinds
        raise NotExportedError(
            f"torch.export cannot follow what this module does ({first_line(error)}), so that it "
            f"cannot be exported to {form.name}. What depends on a batch as a whole often cannot: "
            "take frozen() without statistics='batch' (--statistics stream)."
        ) from error
    for part in program.graph_module.modules():
        for node in getattr(getattr(part, "graph", None), "nodes", ()):
            node.meta.pop("stack_trace", None)  # lines of the model's source, and where they lie
    return program


def _write(form: Format, program: ExportedProgram, path: Path) -> Opened:
    try:
        with _quiet():
            form.write(program, path)
            return form.open(path)
    except Exception as error:  # of any kind, by tools of others
        raise NotExportedError(
            f"{form.name} does not take this module ({type(error).__name__}: {first_line(error)}): "
            "export it to another format, pt2 first."
        ) from error


def _compared(
    opened: Opened, batches: tuple[Tensor, ...], expected: list[Tensor], form: Format
) -> Difference:
    try:
        with _quiet():
            return compare(opened.run, batches, expected)
    except Exception as error:
        sizes = enumerated([str(len(images)) for images in batches])
        raise NotExportedError(
            f"What was exported to {form.name} does not run on batches of {sizes} "
            f"({first_line(error)}): nothing was written."
        ) from error


def _refuse_other_precision(opened: Opened, own: frozenset[str], form: Format) -> None:
    if other := sorted(opened.precisions - own):
        raise NotExportedError(
            f"{form.name} has changed precision: there is {enumerated(other)} in what it made, and "
            f"{enumerated(sorted(own))} in the module. Nothing was written. Export the module in "
            f"that precision if it is wanted (module.to(torch.{other[0]})), or to another format."
        )


def _apart(difference: Difference, tolerance: float, form: Format) -> str:
    return (
        f"What was exported to {form.name} is not the module: logits are off by up to "
        f"{difference.largest:.1e}, {tolerance * difference.scale:.1e} is allowed, and "
        f"{100 * difference.labels:.1f} % of {difference.images} labels differ. Nothing was "
        "written. Export to another format, pt2 first; or, if that is near enough for you, allow "
        "more (tolerance=…, --tolerance on the command line)."
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what exporters say beside their errors."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
