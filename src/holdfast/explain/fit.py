"""Whether a method fits a model: it is tried, on a private copy."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from torch import Tensor, nn

from holdfast.engine.adapter import Adapter
from holdfast.engine.heads import find_head
from holdfast.engine.network import fingerprint
from holdfast.engine.norms import batch_norms
from holdfast.engine.options import Options
from holdfast.explain import Level
from holdfast.recipes.compose import Composition
from holdfast.source.source import Source
from holdfast.util.words import enumerated

# A method is tried on so many images.
TRY_ON = 4

# Mean and variance of fewer images than this are mostly noise.
NOISY_BELOW = 8


@dataclass(frozen=True)
class Fit:
    """Whether a method fits the model and the batch size, and what to know or to do."""

    fits: bool
    remarks: tuple[str, ...] = ()

    @property
    def level(self) -> Level:
        return "problem" if not self.fits else "note" if self.remarks else "good"


class _Wanted(Exception):  # noqa: N818 (a signal, not an error)
    """A method asks the source for what has to be made first."""


class _KnownSource(Source):
    """A source that gives what it has and makes nothing more, which may take long."""

    def _pass(self, loader: Iterable[Any] | None, made: str, *, again: bool = False) -> NoReturn:
        super()._pass(loader, made, again=again)
        raise _Wanted


def try_method(
    method: Composition,
    model: nn.Module,
    *,
    head: str | None,
    source: Source | None,
    images: Tensor | None,
    batch_size: int,
    classes: int | None,
) -> Fit:
    """Set the method up on a copy of the model and, if there are images, let it adapt to them."""
    remarks = []
    try:
        low, high = (0.0, 1.0) if images is None else (b.item() for b in images.aminmax())
        options = Options(head=head, input_range=(min(low, 0.0), max(high, 1.0)))
        adapter = Adapter(model, method, _without_making(source, model, head), options)
        if images is not None and len(images) > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what they say is in `last`
                # In episodes each image costs as much as a batch, and one tells as much.
                adapter(images[: 1 if method.host.episode_steps() else TRY_ON])
            if adapter.last.refused is not None:
                raise ValueError(adapter.last.refused)
    except (ValueError, RuntimeError) as error:  # torch's own are RuntimeErrors
        return Fit(False, (" ".join(str(error).split()),))
    except _Wanted:
        needs = enumerated(method.needs)
        if source is None:
            call = "source=holdfast.Source.from_loader(model, loader)"
            remarks.append(f"needs source {needs}: pass {call}")
        else:
            remarks.append(f"adapt() will first make {needs} from the source's loader")
    remarks += advise(method, model, batch_size, classes)
    if batch_size == 1 and _by_batch(method, model):
        text = (
            "needs window=W: one image has no batch statistics, the last W images have; "
            "or add +steady, which takes images one by one"
        )
        return Fit(False, (text, *remarks))
    return Fit(True, tuple(remarks))


def advise(
    method: Composition, model: nn.Module, batch_size: int, classes: int | None
) -> list[str]:
    """What to know of a method's settings and of the batch size, as far as it needs no trying."""
    remarks = [] if classes is None else method.advice(classes)
    if 1 < batch_size < NOISY_BELOW and _by_batch(method, model):
        remarks.append(
            f"batch statistics of {batch_size} images are noisy: give larger batches, add +steady, "
            "or pass window=W"
        )
    return remarks


def _by_batch(method: Composition, model: nn.Module) -> bool:
    """Whether it normalises by statistics of the batch at hand."""
    return method.by_batch and bool(batch_norms(model))


def _without_making(source: Source | None, model: nn.Module, head: str | None) -> Source:
    if source is None:
        return _KnownSource(fingerprint(model), {}, head=find_head(model, head), loader=())
    known = _KnownSource(source.model_hash, source.tensors)
    # Without what health is calibrated on: that has nothing to do with whether a method fits.
    own = {
        "tensors": known.tensors,
        "drifted": None,
        "cache": None,
        "_spent": list(source._spent),
    }
    vars(known).update(vars(source) | own)
    return known
