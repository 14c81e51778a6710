"""Batches of a caller's loader, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import Tensor

from holdfast.guard import InputRange, check_images
from holdfast.progress import progress
from holdfast.split import Network


def checked_batches(
    loader: Iterable[Any],
    limit: int | None,
    input_range: InputRange,
    network: Network,
    what: str,
) -> Iterator[tuple[Tensor, object]]:
    """Batches of a loader, checked, until `limit` images are seen; the last one is cut to fit."""
    seen = 0
    length = _images_in(loader)
    total = length if limit is None or length is None else min(length, limit)
    with progress(what, total) as advance:
        for index, batch in enumerate(loader):
            images, labels = images_and_labels(batch)
            try:
                check_images(images, input_range, convolutional=network.is_conv)
            except ValueError as error:
                raise ValueError(f"{what}, batch {index} of the loader: {error}") from None
            room = len(images) if limit is None else limit - seen
            images = images[:room]
            labels = labels[:room] if isinstance(labels, Tensor) else labels
            yield network.prepare(images), labels
            seen += len(images)
            advance(len(images))
            if seen == limit:
                return
    if not seen:
        raise ValueError(f"{what}: the loader is empty.")


def images_and_labels(batch: Any) -> tuple[Any, Any]:
    """A loader's batch is images, or a tuple or list of images and perhaps labels."""
    if not isinstance(batch, list | tuple):
        return batch, None
    return batch[0], batch[1] if len(batch) > 1 else None


def _images_in(loader: Iterable[Any]) -> int | None:
    dataset = getattr(loader, "dataset", None)
    try:
        return len(dataset) if dataset is not None else None
    except TypeError:
        return None


def check_labels(labels: object, images: int, classes: int) -> Tensor:
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.shape != (images,):
        found = type(labels).__name__
        if isinstance(labels, Tensor):
            found = f"{labels.dtype} of shape {tuple(labels.shape)}"
        raise ValueError(
            f"A source loader yields (images, labels), labels being {images} whole numbers here, "
            f"not {found}."
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(
            f"The source has a label {low if low < 0 else high}, but the model has {classes} "
            f"classes (0 to {classes - 1})."
        )
    return labels.long().cpu()


class Replay:
    """Labelled batches of a loader by number, in its order, beginning again at its end.

    Batches of one image are passed over where the network needs the statistics of a batch.
    """

    def __init__(
        self, open_loader: Callable[[], Iterable[Any]], network: Network, input_range: InputRange
    ):
        self._open = open_loader
        self._network = network
        self._input_range = input_range
        self._pass = self._batches()
        self._number = -1
        self._latest: tuple[Tensor, Tensor]

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """Batch `number`, counted over all passes. The same and the next one are cheap; any other
        means to go through the loader from its start."""
        if number == self._number + 1:
            found = next(self._pass, None)
            self._latest = self._find(0) if found is None else found
        elif number != self._number:
            self._latest = self._find(number)
        self._number = number
        return self._latest

    def _find(self, number: int) -> tuple[Tensor, Tensor]:
        """From a new pass on; a whole one is gone through at most once, to learn its length."""
        while True:
            self._pass = self._batches()
            length = 0
            for batch in self._pass:
                if number == length:
                    return batch
                length += 1
            if not length:
                raise ValueError("Replay: the source's loader gave no batch to learn from.")
            number %= length

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self._open():
            images, labels = images_and_labels(batch)
            check_images(images, self._input_range, convolutional=self._network.is_conv)
            if len(images) > 1 or not self._network.by_batch:
                known = check_labels(labels, len(images), self._network.classes)
                # A copy, since autograd cannot save what was made in inference mode.
                yield self._network.prepare(images), known.to(self._network.device).clone()
