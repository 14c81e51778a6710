"""Kinds of drift in which labels come in clusters, or shift."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from holdfast.data.streams.flow import Stretch, count_batches
from holdfast.data.streams.spec import ORDER_MEANING, Stream, limit_setting
from holdfast.data.streams.view import Origin, View
from holdfast.util import samplers
from holdfast.util.samplers import Sampler
from holdfast.util.settings import setting


@dataclass(frozen=True)
class Correlated(Stream, name="correlated", after="RoTTA, NOTE"):
    """Labels come in runs, drawn by a Dirichlet law."""

    order: str = setting("rotta", ORDER_MEANING, source="RoTTA")
    gamma: float = setting(
        0.1,
        "concentration: the smaller, the longer the runs",
        at_least=1e-6,
        source="0.1 in RoTTA; in NOTE too, as β",
    )
    sampler: Literal["rotta", "note", "sort"] = setting(
        "rotta",
        "RoTTA's sampler, NOTE's (which drops a last batch that is not full), or by class",
        source="rotta: RoTTA; note: NOTE; sort: RMT's code, at δ = 0",
    )
    slots: int = setting(
        0,
        "slots of RoTTA's sampler; 0: one a class, at most 100",
        at_least=0,
        source="one a class, at most 100, in RoTTA",
    )

    def draws(self) -> Sampler:
        if self.sampler == "note":
            return partial(samplers.note, beta=self.gamma)
        if self.sampler == "sort":
            return samplers.sort
        return partial(samplers.rotta, gamma=self.gamma, slots=self.slots)

    def size(self, view: View, origins: tuple[Origin, ...]) -> int:
        size = super().size(view, origins)
        if self.sampler != "note":
            return size
        if size < self.batch:
            raise ValueError(
                f"NOTE's sampler drops batches that are not full, and a domain has fewer than "
                f"{self.batch} images: lower batch, or take sampler=rotta."
            )
        return size // self.batch * self.batch

    def notices(self, view: View, stretches: Sequence[Stretch]) -> Iterator[str]:
        yield from super().notices(view, stretches)
        unused = {"rotta": (), "note": ("slots",), "sort": ("gamma", "slots")}[self.sampler]
        for name in (name for name in unused if name in self.given):
            yield f"{self.name}: {name} has no effect on sampler={self.sampler}."
        sizes = {stretch.origins: stretch.size for stretch in stretches}
        lone = sum(count_batches(size, self.batch) == 1 for size in sizes.values())
        if lone:
            yield (
                f"{self.name}: {lone} of {len(sizes)} domains are one batch each (batch="
                f"{self.batch}), which holds all their labels at once, so that nothing is "
                f"correlated there: lower batch{', or raise limit' if self.limit else ''}."
            )


@dataclass(frozen=True)
class Recurring(Correlated, name="recurring", after="PeTTA"):
    """The correlated stream again and again, drawn anew each time."""

    limit: int = limit_setting("most images of each domain at each visit, evenly picked; 0: all")
    visits: int = setting(20, "how often each domain comes", at_least=1, source="20 in PeTTA")

    def stretches(self, view: View, seed: int) -> Sequence[Stretch]:
        once = super().stretches(view, seed)
        return [replace(stretch, visit=visit) for visit in range(self.visits) for stretch in once]

    def notices(self, view: View, stretches: Sequence[Stretch]) -> Iterator[str]:
        yield from super().notices(view, stretches)
        if self.visits == 1:
            yield f"{self.name}: with visits=1 nothing comes again: raise visits."


@dataclass(frozen=True)
class LabelShift(Stream, name="labelshift", after="SAR"):
    """Each class in turn is the likely one, drawn with replacement."""

    redraws: ClassVar[bool] = True

    limit: int = limit_setting(
        "most images drawn of each domain; 0: as many as give every class its steps"
    )
    ratio: float = setting(
        500_000,
        "how much likelier than another class it is",
        at_least=1,
        source="1 to 500,000 in SAR, which takes that for infinity",
    )
    steps: int = setting(
        100, "images for which a class is the likely one", at_least=1, source="100 in SAR"
    )

    def draws(self) -> Sampler:
        return partial(samplers.shift_labels, ratio=self.ratio, steps=self.steps)

    def size(self, view: View, origins: tuple[Origin, ...]) -> int:
        size = self.steps * _count_classes(view, origins)
        return min(size, self.limit or size)

    def notices(self, view: View, stretches: Sequence[Stretch]) -> Iterator[str]:
        yield from super().notices(view, stretches)
        for stretch in stretches:
            turns, classes = -(-stretch.size // self.steps), _count_classes(view, stretch.origins)
            if turns < classes:
                yield (
                    f"{self.name}: limit={self.limit} ends a domain after {turns} of {classes} "
                    "classes have been the likely one: raise limit, or lower steps."
                )
                return


def _count_classes(view: View, origins: tuple[Origin, ...]) -> int:
    return len(np.unique(view.labels(origins)))
