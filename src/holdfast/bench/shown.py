"""The model of a run and the images that it sees, opened once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from holdfast.bench.code import code_hash
from holdfast.bench.opening import check_size, open_alike, open_shown
from holdfast.bench.plan import Run
from holdfast.data.attack import Attacked
from holdfast.data.cache import cached_set
from holdfast.data.cache import fingerprint as data_fingerprint
from holdfast.data.images import Images
from holdfast.data.pools import Data, Pool, find_table
from holdfast.data.readers.sets import DataSet
from holdfast.data.streams import Flow
from holdfast.engine.network import fingerprint as model_fingerprint
from holdfast.engine.network import logits_of
from holdfast.models.find import find_model, hash_of_code
from holdfast.util.words import first_line

# The model of these data.
MODELS = {"glyphs-c": "glyphs"}

# SoTTA's adversarial images: of small images, and of ImageNet's.
ATTACK: dict[str, Any] = {"steps": 10, "epsilon": 0.1}
ATTACK_LARGE: dict[str, Any] = {"steps": 1, "epsilon": 0.2}

T = TypeVar("T")


class Shown:
    """The model and the images; what takes long to make is kept below `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._opened: dict[Hashable, Any] = {}
        self._last_flow: tuple[Run, Flow] | None = None

    def _cached(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._opened:
            self._opened[key] = make()
        value: T = self._opened[key]
        return value

    def model(self, run: Run) -> nn.Module:
        name = run.model.name or MODELS.get(run.data.name)
        if name is None:
            self.data(run)  # if there is no such set, that is to be said first
            raise ValueError(
                f"Which model is to see {run.data.name}? Pass --model, such as "
                "resnet20:path/to/weights.safetensors or package.module:factory."
            )
        check_device(run.machine.device)
        return self._cached(
            ("model", name, run.normalization, run.machine.device),
            lambda: find_model(name, run.normalization).to(run.machine.device).eval(),
        )

    def model_hash(self, run: Run) -> str:
        model = self.model(run)
        return self._cached(("model hash", id(model)), lambda: model_fingerprint(model))

    def _model_code(self, run: Run) -> dict[str, str | None]:
        """The hash of the file that defines a user's own model: weights alone do not say what it
        computes."""
        name = run.model.name or ""
        digest = self._cached(("model code", name), lambda: hash_of_code(name))
        return {} if digest is None else {"model file": digest}

    def classes(self, run: Run) -> int:
        """How many classes the model knows; the data may have fewer."""
        model, data = self.model(run), self.data(run)

        def counted() -> int:
            images = next(iter(self.flow(run))).images[:2].to(run.machine.device)
            with torch.no_grad():
                return int(logits_of(model(images)).shape[1])

        classes = self._cached(("classes", id(model)), counted)
        if data.classes > classes:
            raise ValueError(
                f"{run.data.name} has {data.classes} classes, and the model knows {classes}: take "
                "a model that was trained on them."
            )
        return classes

    # The images.

    @property
    def _images(self) -> Path:
        """Cached images are used only by the version of the code that made them."""
        return self.folder / "images" / code_hash("data")[:16]

    def _hash_of(self, data: DataSet | Images) -> str:
        return self._cached(("hash", id(data)), lambda: data_fingerprint(data))

    def data(self, run: Run) -> DataSet:
        def opened() -> DataSet:
            data = open_shown(run.shown, run.data)
            check_size(data, run.data.size)
            fingerprint = data_fingerprint(data)
            stored = cached_set(data, self._images / fingerprint[:16])
            self._opened["hash", id(stored)] = fingerprint
            return stored

        return self._cached(("data", run.data, frozenset(run.shown)), opened)

    def data_hash(self, run: Run) -> str:
        return self._hash_of(self.data(run))

    def flow(self, run: Run) -> Flow:
        """The run's stream over its data; the latest one is kept and shared."""
        if self._last_flow is None or self._last_flow[0] != run:
            self._last_flow = run, self._open_flow(run)
        return self._last_flow[1]

    def _open_flow(self, run: Run) -> Flow:
        data = self.data(run)
        intruders: Pool | Data | None = self._intruders(run)
        if intruders is None and getattr(run.resolved_stream, "kind", None) == "attack":
            small = find_table(data.domains[-1].dataset) == "cifar"
            intruders = Attacked(data, self.model(run), **(ATTACK if small else ATTACK_LARGE))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # notices are told before runs begin
            return run.resolved_stream.over(data, seed=run.seed, intruders=intruders)

    def _intruders(self, run: Run) -> Images | None:
        """Images of no class that were given."""
        name = run.stream.intruders
        if name is None:
            return None
        return self._cached(("intruders", name, run.data), lambda: open_alike(run.data, name))


def check_device(name: str) -> None:
    try:
        torch.empty(0, device=name)
    except Exception as error:  # an AssertionError, where torch was built without it
        raise ValueError(
            f"torch has no device {name!r} here ({first_line(error)}): pass --device cpu, or "
            "one that it has."
        ) from None
