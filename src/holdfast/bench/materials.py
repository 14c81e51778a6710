"""What runs share and take long to open: the model, the data, what is known of its source."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from filelock import FileLock
from torch import Tensor, nn
from torch.utils.data import DataLoader

from holdfast.bench.code import code_hash, code_hashes
from holdfast.bench.kept import beside, has_features, stored, without_health
from holdfast.bench.opening import SOURCE_BATCH, check_size, open_alike, open_shown, shuffled
from holdfast.bench.plan import Run
from holdfast.data.attack import Attacked
from holdfast.data.cache import cached, cached_set
from holdfast.data.cache import fingerprint as data_fingerprint
from holdfast.data.glyphs import Glyphs
from holdfast.data.holdout import Drifted, drifted
from holdfast.data.images import Images
from holdfast.data.pools import Data, Pool, find_table
from holdfast.data.readers.layouts import CLEAN
from holdfast.data.readers.sets import DataSet
from holdfast.data.streams import Flow
from holdfast.engine.network import fingerprint as model_fingerprint
from holdfast.engine.network import logits_of
from holdfast.models.find import find_model, hash_of_code
from holdfast.source.source import Source
from holdfast.util.files import file_hash, text_hash
from holdfast.util.words import first_line

# The model of these data, and the images that models of them were trained on, where it is known.
MODELS = {"glyphs-c": "glyphs"}
SOURCES = {
    "glyphs-c": "glyphs",
    "cifar10-c": "cifar10",
    "cifar100-c": "cifar100",
    "imagenet-c": "imagenet",
}

# SoTTA's adversarial images: of small images, and of ImageNet's.
ATTACK: dict[str, Any] = {"steps": 10, "epsilon": 0.1}
ATTACK_LARGE: dict[str, Any] = {"steps": 1, "epsilon": 0.2}

# At most as many images as the paper takes for its prototypes; fewer where images are drawn, which
# takes time.
SOURCE_IMAGES = 100_000
DRAWN_IMAGES = 10_000

# How many images a source for health alone is made of, where the method needs none; and how many
# images of each kind of drift estimates are calibrated on.
HEALTH_SOURCE = 3_000
DRIFTED_IMAGES = 256

T = TypeVar("T")


class Materials:
    """All that a run is made of, opened once; what takes long to make is kept below `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._opened: dict[Hashable, Any] = {}
        self._last_flow: tuple[Run, Flow] | None = None

    def _cached(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._opened:
            self._opened[key] = make()
        value: T = self._opened[key]
        return value

    def hashes(self, run: Run) -> dict[str, str | None]:
        """Hashes of what a run is made of, which count in place of names."""
        intruders, health = self._intruders(run), self.health_hash(run)
        return {
            **code_hashes(run.methods),
            "model": self.model_hash(run),
            **self._model_code(run),
            "data": self.data_hash(run),
            "source": self.source_hash(run),
            **({} if health is None else {"health": health}),
            **({} if intruders is None else {"intruders": self._hash_of(intruders)}),
        }

    # The model.

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

    # The source.

    def source_images(self, run: Run) -> Images:
        """The images that the model was trained on, or some of them."""
        name = run.model.source or SOURCES.get(run.data.name)
        if name is None:
            needs = run.composition.needs or ("prototypes",)
            raise ValueError(
                f"{run.composition.names} needs {' and '.join(needs)} of the source data, and "
                f"nothing is known of what the model was trained on: pass --source, a saved Source "
                "or a clean set of training images."
            )

        def opened() -> Images:
            if name == "glyphs":
                images: Images = Glyphs("train", DRAWN_IMAGES)
            else:
                images = open_alike(run.data, name, split="train", classes=run.data.classes)
            fingerprint = data_fingerprint(images)
            stored = cached(images, self._images / f"{fingerprint[:16]}.images")
            self._opened["hash", id(stored)] = fingerprint
            return stored

        return self._cached(("source set", name, run.data), opened)

    def _fisher_hash(self, run: Run) -> str | None:
        return self.data_hash(run) if "fisher" in run.composition.needs else None

    def source_hash(self, run: Run) -> str | None:
        """Hash of what the source is made from; None where the run's method needs none."""
        if not (run.composition.needs or run.analysis):
            return None
        path = _source_file(run)
        if path is not None:
            return self._file_hash(path)
        images, fisher = self._hash_of(self.source_images(run)), self._fisher_hash(run) or ""
        return _digest(f"{images} {fisher} {SOURCE_IMAGES} {_source_batch(run)}")

    def health_hash(self, run: Run) -> str | None:
        """Hash of what estimates of accuracy are made from; None where none are wanted, or where
        the model's training images or its features are not known."""
        if not (run.watch.health and self._has_features(run)):
            return None
        path = _source_file(run)
        if path is not None:
            return self._file_hash(path)
        try:
            images = self._hash_of(self.source_images(run))
        except (FileNotFoundError, ValueError):
            if run.model.source is not None:  # what was asked for has to be there
                raise
            return None
        return _digest(f"{images} {HEALTH_SOURCE} {DRIFTED_IMAGES}")

    def _has_features(self, run: Run) -> bool:
        model, head = self.model(run), run.model.head
        return self._cached(
            ("features", id(model), head),
            lambda: has_features(model, head, next(iter(self.flow(run))).images[:2]),
        )

    def _file_hash(self, path: Path) -> str:
        if not path.is_file():
            raise ValueError(f"There is no source file {path}: make it with Source.save.")
        return self._cached(("source hash", path), lambda: file_hash(path))

    def source(self, run: Run) -> Source | None:
        """What the run's method and its health need to know before the stream; kept on disk once
        made."""
        needed, health = self.source_hash(run) is not None, self.health_hash(run) is not None
        if not (needed or health):
            return None
        model, file = self.model(run), _source_file(run)
        fisher, cache = self._fisher_loader(run), self._sources(run)

        def loaded(path: Path, loader: Any = None, under_drift: Drifted | None = None) -> Source:
            source = Source.load(path, loader, fisher, drifted=under_drift, cache=cache)
            if not health:
                source.tensors = without_health(source.tensors)
            return source

        if file is not None:
            return self._cached(("source", file, id(model), health), lambda: loaded(file))
        images, path = self.source_images(run), self._source_path(run)

        def opened() -> Source:
            limit = SOURCE_IMAGES if needed else HEALTH_SOURCE
            loader = shuffled(images, limit, _source_batch(run))
            under_drift = drifted(shuffled(images), images=DRIFTED_IMAGES) if health else None
            if path.exists():
                return loaded(path, loader, under_drift)
            with warnings.catch_warnings():
                if not needed:  # health takes no class by itself
                    warnings.filterwarnings("ignore", ".*classes have no source image")
                return Source.from_loader(
                    *(model, loader, limit, fisher),
                    drifted=under_drift,
                    head=run.model.head,
                    cache=cache,
                )

        return self._cached(("source", path, health), opened)

    @contextmanager
    def preparing(self, run: Run) -> Iterator[None]:
        """Only one process builds a given source; the others wait, and take what it has made."""
        known = self.source_hash(run), self.health_hash(run)
        if known == (None, None) or _source_file(run) is not None:
            yield
            return
        path = self._source_path(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        for_what = "-".join([*run.composition.needs, *(["health"] if known[1] else [])])
        with FileLock(path.with_suffix(f".{for_what}.lock")):
            source = self.source(run)
            assert source is not None  # something is to be known
            made = beside(source, stored(path))
            source.tensors |= made if known[1] else without_health(made)
            yield
            # Processes that build other parts of it write into the same file.
            with FileLock(path.with_suffix(".lock")):
                on_disk = stored(path)
                if not source.tensors.keys() <= on_disk.keys():
                    source.holding(beside(source, on_disk), None).save(path)

    def _sources(self, run: Run) -> Path:
        code = _digest((code_hashes(run.methods), self._model_code(run)))
        return self.folder / "sources" / code[:16]

    def _source_path(self, run: Run) -> Path:
        images = self._hash_of(self.source_images(run))
        made_of = [self.model_hash(run), images, run.model.head, self._fisher_hash(run)]
        if self.source_hash(run) is None:
            made_of.append("health alone")
        if _source_batch(run) != SOURCE_BATCH:
            made_of.append(f"batches of {_source_batch(run)}")
        return self._sources(run) / f"{_digest(made_of)[:16]}.safetensors"

    def _fisher_loader(self, run: Run) -> DataLoader[tuple[Tensor, int]] | None:
        """Clean test images, as EATA's released code takes them, where the data has them."""
        if "fisher" not in run.composition.needs:
            return None
        names = [domain.name for domain in self.data(run).domains]
        return shuffled(self.data(run)[CLEAN]) if CLEAN in names else None


def check_device(name: str) -> None:
    try:
        torch.empty(0, device=name)
    except Exception as error:  # an AssertionError, where torch was built without it
        raise ValueError(
            f"torch has no device {name!r} here ({first_line(error)}): pass --device cpu, or "
            "one that it has."
        ) from None


def _source_batch(run: Run) -> int:
    """Where styles matter, source batches are as large as the stream's: styles depend on it."""
    return run.resolved_stream.batch if "styles" in run.composition.needs else SOURCE_BATCH


def _digest(content: object) -> str:
    return text_hash(repr(content))


def _source_file(run: Run) -> Path | None:
    """Where a saved source lies, if that is what was given."""
    source = run.model.source
    return Path(source) if source is not None and source.endswith(".safetensors") else None
