"""Batches of a caller's loader, checked; and what tells them from others."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from holdfast.engine.checks import InputRange, check_images
from holdfast.engine.network import Network
from holdfast.util.progress import progress
from holdfast.util.settings import whole

if TYPE_CHECKING:
    from typing import TypeGuard

# Images, labels, and the kind of drift they are under, with its severity: "gaussian_blur-3".
DriftedBatch = tuple[Tensor, Tensor, str]
CLEAN = "clean"


def checked_batches(
    loader: Iterable[Any],
    limit: int | None,
    input_range: InputRange,
    network: Network,
    title: str,
    number: int = 0,
) -> Iterator[tuple[Tensor, object]]:
    """Batches of pass `number` over a loader, checked, until `limit` images are seen; the last one
    is cut to fit."""
    count = 0
    length = _images_in(loader)
    total = length if limit is None or length is None else min(length, limit)
    with progress(title, total) as advance:
        for index, batch in enumerate(in_its_own_order(loader, number)):
            images, labels = images_and_labels(batch)
            try:
                check_images(images, input_range, convolutional=network.is_conv)
            except ValueError as error:
                raise ValueError(f"{title}, batch {index} of the loader: {error}") from None
            room = len(images) if limit is None else limit - count
            images = images[:room]
            labels = labels[:room] if _are_labels(labels) and labels.ndim else labels
            yield network.prepare(images), labels
            count += len(images)
            advance(len(images))
            if count == limit:
                return
    if not count:
        raise ValueError(f"{title}: the loader is empty; expected batches of (images, labels).")


def drifted_batches(
    loader: Iterable[Any], input_range: InputRange, network: Network
) -> Iterator[DriftedBatch]:
    """Labelled batches under drift, checked."""
    title = "Calibration of health"
    with progress(title, None) as advance:
        for index, batch in enumerate(in_its_own_order(loader)):
            images, labels = images_and_labels(batch)
            try:
                check_images(images, input_range, convolutional=network.is_conv)
                known = check_labels(labels, len(images), network.classes)
                if len(batch) < 3 or not isinstance(batch[2], str):
                    raise ValueError(
                        "A batch is (images, labels, kind of drift), such as 'clean' or "
                        "'gaussian_blur-3': holdfast.data.holdout.drifted(loader) makes them."
                    )
            except ValueError as error:
                raise ValueError(f"{title}, batch {index} of drifted=…: {error}") from None
            yield network.prepare(images), known, batch[2]
            advance(len(images))


def images_and_labels(batch: Any) -> tuple[Any, Any]:
    """A loader's batch is images, or a tuple or list of images and perhaps labels."""
    if not isinstance(batch, list | tuple) or not batch:
        return batch, None
    return batch[0], batch[1] if len(batch) > 1 else None


def _images_in(loader: Iterable[Any]) -> int | None:
    dataset = getattr(loader, "dataset", None)
    try:
        return len(dataset) if dataset is not None else None
    except (OverflowError, TypeError, ValueError):  # it has none, or none that can be
        return None


def check_labels(labels: object, images: int, classes: int) -> Tensor:
    if not _are_labels(labels) or labels.shape != (images,):
        given = type(labels).__name__
        if isinstance(labels, Tensor) and not labels.is_nested:
            given = f"{labels.dtype} of shape {tuple(labels.shape)}"
        raise ValueError(
            f"A source loader yields (images, labels); expected {images} whole numbers for labels "
            f"here, not {given}."
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(
            f"The source has a label {low if low < 0 else high}, but the model has {classes} "
            f"classes; expected 0 to {classes - 1}: leave out images of classes that it does not "
            "know."
        )
    return labels.long().cpu()


def _are_labels(labels: object) -> TypeGuard[Tensor]:
    """Whether these are whole numbers that can be looked at."""
    if not isinstance(labels, Tensor) or labels.is_nested or labels.is_meta:
        return False
    numbers = not (labels.is_floating_point() or labels.is_complex() or labels.is_quantized)
    return numbers and labels.dtype is not torch.bool and labels.layout is torch.strided


def in_its_own_order(loader: Iterable[Any], number: int = 0) -> Iterator[Any]:
    """Pass `number` over a loader. If it shuffles, then always alike for the same number, and
    without a draw from the caller's randomness."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(number)
        try:
            iterator = iter(loader)
        except TypeError:
            raise ValueError(
                f"A loader yields batches of (images, labels), as a DataLoader or a list does, and "
                f"{type(loader).__name__} cannot be gone through: give one of these."
            ) from None
        state = torch.get_rng_state()
    while True:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            try:
                batch = next(iterator)
            except StopIteration:
                return
            state = torch.get_rng_state()
        yield batch


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
        self._batches = self._from(0)
        self._next = 0
        self._latest: tuple[Tensor, Tensor] | None = None

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        """Batch `number`, counted over all passes. The same and the next one are cheap; any other
        means to go through a pass from its start."""
        if self._latest is None or number != self._next - 1:
            if number != self._next:
                self._batches = self._from(number)
            try:
                self._latest = next(self._batches)
            except BaseException:
                self._next = -1  # what comes next has to be looked for
                raise
            self._next = number + 1
        return self._latest

    def _from(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches from a number on, without end; the first pass is gone through to learn how long
        a pass is."""
        passes = length = 0
        while True:
            count = first = passes * length
            for batch in self._pass(passes):
                if count >= number:
                    yield batch
                count += 1
            if count == first:
                raise ValueError("Replay: the source's loader gave no batch to learn from.")
            length = length or count
            passes = max(passes + 1, number // length)

    def _pass(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        for index, batch in enumerate(in_its_own_order(self._open(), number)):
            images, labels = images_and_labels(batch)
            try:
                check_images(images, self._input_range, convolutional=self._network.is_conv)
                known = check_labels(labels, len(images), self._network.classes)
            except ValueError as error:
                raise ValueError(f"Replay, batch {index} of the source's loader: {error}") from None
            if len(images) > 1 or not self._network.by_batch:
                # A copy, since autograd cannot save what was made in inference mode.
                yield self._network.prepare(images), known.to(self._network.device).clone()


class Order:
    """Tells the images of a loader, in their order, from others."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def update(self, images: Tensor, labels: object) -> None:
        # Two numbers an image: as good as its pixels, and far faster to hash.
        flat = images.flatten(1).float()
        sums = torch.stack([flat.sum(1), (flat * flat).sum(1)])
        self._hash.update(sums.cpu().numpy().tobytes())
        if isinstance(labels, Tensor):
            self._hash.update(labels.long().cpu().numpy().tobytes())

    @property
    def digest(self) -> Tensor:
        return torch.tensor(list(self._hash.digest()), dtype=torch.uint8)


def check_limit(limit: object) -> int:
    try:
        return whole(limit, "limit", 1)
    except ValueError:
        raise ValueError(
            f"limit is a number of images, at least 1, or None, not {limit!r}."
        ) from None
