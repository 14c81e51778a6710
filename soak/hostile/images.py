"""Images for an adapter: wrong shapes, types, values and layouts, by every way in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

import holdfast
from holdfast.engine.network import fingerprint
from holdfast.util.files import tensor_hash
from soak.hostile.door import Door, Harm
from soak.hostile.small import CLASSES, small_images, small_net, small_source

# Settings under which each does on few images all that it can do.
ADAPTERS: dict[str, dict[str, Any]] = {
    "frozen": {},
    "bn": {},
    "tent": {},
    "eata+debias": {"rollback": True},
    "sar": {"window": 6},
    "cotta(views=2,augment_below=1)": {},
    "rotta(capacity=6,every=5)": {},
    "rotta(capacity=6,every=5)+debias": {"window": 4, "rollback": True},
    "t3a(keep=3)": {"window": 6},
    "tsd(keep=3)": {},
    "ttac": {},
    "rmt(warmup_samples=20)": {},
    "tent+consistency": {},
    "eta": {"input_range": None},
}
WAYS = ("call", "predict", "features")
DTYPES = (
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.quint8),
)
VALUES = (
    *(float("nan"), float("inf"), float("-inf"), 3.4e38, -3.4e38, 1e30, -1e30, 255.0, 2.0, -1.0),
    *(-0.002, 1.002, 1e-45, -1e-45),
)
LAYOUTS = {
    "sparse": lambda x: x.to_sparse(),
    "meta": lambda x: x.to("meta"),
    "one image shown over and over": lambda x: x[:1].expand(8, -1, -1, -1),
    "transposed": lambda x: x.transpose(2, 3),
    "every other row": lambda x: x[:, :, ::2],
    "channels last": lambda x: x.permute(0, 2, 3, 1),
    "negative bit": lambda x: torch.view_as_complex(torch.stack([x, -x], -1)).conj().imag,
    "part of a graph": lambda x: x.clone().requires_grad_() * 1.0,
    "a parameter": lambda x: torch.nn.Parameter(x.clone()),
    "nested": lambda x: torch.nested.nested_tensor([x[0], x[1]]),
    "mkldnn": lambda x: x.to_mkldnn(),
    "numpy": lambda x: x.numpy(),
    "list": lambda x: x.tolist(),
    "tuple": lambda x: (x, x),
    "dictionary": lambda x: {"images": x},
}
_THINGS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.lists(st.floats(width=32), max_size=5),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=3),
    st.sampled_from([object, torch, torch.float32, np.zeros(3), range(4), ...]),
)


@st.composite
def things(draw: st.DrawFn) -> Any:
    """No tensors at all. As one choice: hypothesis would count each kind of thing as one."""
    return draw(_THINGS)


@st.composite
def poisoned(draw: st.DrawFn) -> Tensor:
    images = small_images(8)
    for value in draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4)):
        index = tuple(draw(st.integers(0, size - 1)) for size in images.shape)
        images[index] = value
    return images


@st.composite
def shaped(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 9), max_size=6).filter(lambda s: np.prod(s) < 20_000))
    images: Tensor = torch.full(shape, 0.5) if draw(st.booleans()) else torch.rand(shape)
    return images


@st.composite
def sized(draw: st.DrawFn) -> Tensor:
    """Four dimensions, as they should be, of any size."""
    sides = st.sampled_from([1, 2, 3, 7, 8, 9, 16, 31])
    count, channels = draw(st.integers(0, 4)), draw(st.sampled_from([0, 1, 2, 3, 4, 8]))
    return torch.rand(count, channels, draw(sides), draw(sides))


@st.composite
def scaled(draw: st.DrawFn) -> Tensor:
    numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)
    return small_images(8) * draw(numbers) + draw(numbers)


def cast(dtype: torch.dtype) -> Tensor:
    if dtype is torch.quint8:
        return torch.quantize_per_tensor(small_images(4), 1 / 255, 0, dtype)
    return small_images(4).to(dtype)


def given_images() -> st.SearchStrategy[Any]:
    return st.one_of(
        things(),
        poisoned(),
        shaped(),
        sized(),
        scaled(),
        st.sampled_from(DTYPES).map(cast),
        st.sampled_from(sorted(LAYOUTS)).map(lambda name: LAYOUTS[name](small_images(8))),
    )


class AdapterDoor(Door):
    name = "adapter"

    def __init__(self, folder: Path):
        self.model = small_net()
        source = small_source(self.model)
        self.adapters = {}
        for spec, options in ADAPTERS.items():
            adapter = holdfast.adapt(self.model, spec, source=source, **options)
            for seed in range(2):
                adapter(small_images(8, seed))
            self.adapters[spec] = adapter
        self.chosen = next(iter(self.adapters.values()))

    def inputs(self) -> st.SearchStrategy[Any]:
        specs = st.sampled_from(sorted(self.adapters))
        return st.tuples(specs, st.sampled_from(WAYS), given_images())

    def attempt(self, given: Any) -> None:
        spec, way, images = given
        adapter = self.adapters[spec]
        before = self._digest(adapter)
        try:
            answer = getattr(adapter, way if way != "call" else "__call__")(images)
        except BaseException:
            if self._digest(adapter) != before:
                raise Harm(f"{spec} refused images, and yet its state changed") from None
            raise
        unchanged = self._digest(adapter) == before
        if (way != "call" or adapter.last.refused is not None) and not unchanged:
            raise Harm(f"{spec}: state changed by {way}, {adapter.last.refused or 'not refused'}")
        if not isinstance(images, Tensor) or len(answer) != len(images):
            raise Harm(f"{spec} answered {type(images).__name__} with {tuple(answer.shape)}")
        if way != "features" and answer.shape[1] != CLASSES:
            raise Harm(f"{spec} gave logits of shape {tuple(answer.shape)}")
        refused = adapter.last.refused is not None if way == "call" else not images.isfinite().all()
        if not (refused or way != "call" or answer.isfinite().all()):
            raise Harm(f"{spec} gave logits that are not finite, and said nothing")
        if way == "call" and not unchanged and not self._is_finite(adapter):
            raise Harm(f"{spec} has NaN in its state")

    def _digest(self, adapter: holdfast.Adapter) -> str:
        """Of the whole state, the caller's model, and torch's randomness."""
        tensors = {**adapter._state.saved(), "torch's randomness": torch.get_rng_state()}
        return tensor_hash(tensors, fingerprint(self.model))

    def _is_finite(self, adapter: holdfast.Adapter) -> bool:
        return not any(bool(t.isnan().any()) for t in adapter._state.tensors().values())

    def describe(self, given: Any) -> str:
        spec, way, images = given
        shown = repr(images)[:80]
        if isinstance(images, Tensor) and not images.is_nested:
            shown = f"{images.dtype} of shape {tuple(images.shape)}, {images.layout}"
        return f"{spec}, {way}: {shown}"
