"""Loaders for a source: batches, labels and limits that are not what they should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import holdfast
from holdfast.engine.network import fingerprint
from holdfast.util.files import tensor_hash
from soak.hostile.door import Door, Harm
from soak.hostile.images import given_images, things
from soak.hostile.small import CLASSES, small_images, small_loader, small_net


class BrokenLoader:
    """Fails half-way, or says that it has a length that it has not."""

    def __init__(self, batches: list[Any], length: Any):
        self.batches, self.dataset = batches, self
        self.length = length

    def __len__(self) -> int:
        return self.length  # type: ignore[no-any-return]

    def __iter__(self) -> Any:
        return iter(self.batches)


LABELS = st.one_of(
    things(),
    st.lists(st.integers(-3, CLASSES + 3), min_size=8, max_size=8).map(torch.tensor),
    st.lists(st.integers(0, CLASSES - 1), max_size=12).map(lambda n: torch.tensor(n).long()),
    st.lists(st.integers(0, CLASSES - 1), min_size=8, max_size=8).map(
        lambda n: torch.tensor(n).float()
    ),
    st.sampled_from(
        [
            torch.zeros(8, CLASSES),
            torch.zeros(8, 1, dtype=torch.int64),
            torch.zeros(8, dtype=torch.bool),
            torch.full((8,), 2**62),
            torch.full((8,), -(2**63)),
            torch.zeros(8, dtype=torch.complex64),
            torch.zeros(8, dtype=torch.int64).to_sparse(),
            torch.zeros(8, dtype=torch.int64, device="meta"),
            torch.nn.functional.one_hot(torch.arange(8) % CLASSES),
        ]
    ),
)


def batches() -> st.SearchStrategy[Any]:
    good = st.just(small_loader()[0])
    bad = st.one_of(
        things(),
        st.tuples(given_images(), LABELS),
        st.tuples(given_images(), st.just(torch.arange(8) % CLASSES)),
        st.tuples(st.just(small_images(8)), LABELS),
        st.lists(st.just(small_images(8)), max_size=1),
        st.just(()),
        st.tuples(st.just(small_images(8)), LABELS, things()),
    )
    return st.one_of(good, bad)


class LoaderDoor(Door):
    name = "loader"

    def __init__(self, folder: Path):
        self.model = small_net()

    def inputs(self) -> st.SearchStrategy[Any]:
        loaders = st.one_of(
            things(),
            st.lists(batches(), max_size=4),
            st.builds(BrokenLoader, st.lists(batches(), max_size=3), things()),
        )
        limits = st.one_of(st.just(100), st.none(), st.integers(-3, 30), things())
        heads = st.one_of(st.none(), st.just("fc"), st.sampled_from(["conv1", "", "fc.weight"]))
        return st.tuples(loaders, limits, heads)

    def attempt(self, given: Any) -> None:
        loader, limit, head = given
        source = holdfast.Source.from_loader(self.model, loader, limit, head=head)
        if any(t.is_floating_point() and not t.isfinite().all() for t in source.tensors.values()):
            raise Harm("a source was made that is not finite")
        if int(source.counts.sum()) < 1:
            raise Harm("a source was made of no image")

    def state(self) -> str:
        return tensor_hash({"torch": torch.get_rng_state()}, fingerprint(self.model))

    def describe(self, given: Any) -> str:
        loader, limit, head = given
        shown = loader.batches if isinstance(loader, BrokenLoader) else loader
        length = f", length {loader.length!r}" if isinstance(loader, BrokenLoader) else ""
        return f"{_brief(shown)}{length}, limit={limit!r}, head={head!r}"


def _brief(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"<{value.dtype} {'nested' if value.is_nested else tuple(value.shape)}>"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_brief, value))}]"
    return repr(value)[:60]
