"""A method on a stream; and its first batches by the clock."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence

from torch import Tensor, nn

from holdfast.api import adapt
from holdfast.data.images import as_bytes, as_floats
from holdfast.data.streams import Flow
from holdfast.engine.adapter import Adapter
from holdfast.rehearsal.judge import Evaluation
from holdfast.source.source import Source
from holdfast.util.words import first_line

# How many batches are timed, after a first one that warms up.
TIMED = 2


class Shown:
    """The batches of a stream, made once for all methods and kept as bytes."""

    def __init__(self, flow: Flow):
        self.batches = [
            (as_bytes(batch.images), batch.labels, batch.scored) for batch in flow.batches()
        ]

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for pixels, labels, scored in self.batches:
            yield as_floats(pixels), labels, scored


def evaluate(
    adapter: Adapter, shown: Shown, tell: Callable[[int], None] = lambda images: None
) -> Evaluation:
    """Show the adapter the images, and count what it has right. What goes wrong on the way is part
    of what is found. `tell` hears of each batch's images."""
    right: list[int] = []
    images: list[int] = []
    collapsed, failed = False, None
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of collapse and refusals, which are counted
        for batch, labels, scored in shown:
            try:
                answers = adapter(batch).argmax(1).cpu()
            except (ValueError, RuntimeError) as error:
                failed = first_line(error)
                break
            right.append(int((answers == labels)[scored].sum()))
            images.append(int(scored.sum()))
            collapsed |= adapter.last.collapsed
            tell(len(labels))
    seconds = time.perf_counter() - start
    return Evaluation(tuple(right), tuple(images), collapsed, failed, seconds)


def begin(model: nn.Module, method: str, source: Source, head: str | None, seed: int) -> Adapter:
    """A fresh adapter; what it lacks of the source is made, and kept there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return adapt(model, method, source=source, head=head, seed=seed)


def time_batches(adapter: Adapter, images: Tensor, sizes: Sequence[int]) -> dict[int, float]:
    """Seconds for an image in batches of these sizes."""
    seconds = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for size in sizes:
            batches = [images[index * size :][:size] for index in range(TIMED + 1)]
            adapter(batches[0]).cpu()
            start = time.perf_counter()
            for batch in batches[1:]:
                adapter(batch).cpu()  # which waits for a GPU
            seconds[size] = (time.perf_counter() - start) / (TIMED * size)
    return seconds
