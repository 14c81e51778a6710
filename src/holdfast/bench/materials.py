"""What runs share and take long to open: the model, the data, what is known of its source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from filelock import FileLock
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from holdfast.bench.code import code_hashes
from holdfast.bench.opened import Opened
from holdfast.bench.plan import Run
from holdfast.data.cache import cached
from holdfast.data.fingerprint import fingerprint as data_fingerprint
from holdfast.data.glyphs import Glyphs
from holdfast.data.images import Images
from holdfast.data.readers.clean import open_clean
from holdfast.data.readers.layouts import CLEAN
from holdfast.source.source import Source
from holdfast.util.hashing import file_hash, text_hash

# The images that models of these data were trained on.
SOURCES = {
    "glyphs-c": "glyphs",
    "cifar10-c": "cifar10",
    "cifar100-c": "cifar100",
    "imagenet-c": "imagenet",
}

# As many images as the paper takes for its prototypes, at most; drawn ones cost time.
SOURCE_IMAGES = 100_000
DRAWN_IMAGES = 10_000
SOURCE_BATCH = 64


class Materials(Opened):
    """All that a run is made of, opened once; what takes long to make is kept below `folder`."""

    def _sources(self, run: Run) -> Path:
        code = _digest((code_hashes(run.methods), self._model_code(run)))
        return self.folder / "sources" / code[:16]

    def _source_set(self, run: Run) -> Images:
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
                images = open_clean(name, root, split="train", classes=classes)
            fingerprint = data_fingerprint(images)
            stored = cached(images, self._images / f"{fingerprint[:16]}.images")
            self._opened["hash", id(stored)] = fingerprint
            return stored

        root, classes = run.data.root, run.data.classes
        return self._cached(("source set", name, root, classes), opened)

    def hashes(self, run: Run) -> dict[str, str | None]:
        """Of what a run is made of, in place of the names that it goes by."""
        intruders = self._intruders(run)
        return {
            **code_hashes(run.methods),
            "model": self.model_hash(run),
            **self._model_code(run),
            "data": self.data_hash(run),
            "source": self.source_hash(run),
            **({} if intruders is None else {"intruders": self._hash_of(intruders)}),
        }

    def source_hash(self, run: Run) -> str | None:
        """Of what the source is made from; None where the run needs none."""
        if not (run.composition.needs or run.analysis):
            return None
        if _is_file(run.model.source):
            path = Path(str(run.model.source))
            return self._cached(("source hash", path), lambda: _hash_file(path))
        images = self._source_set(run)
        fisher = self.data_hash(run) if "fisher" in run.composition.needs else ""
        return _digest(f"{self._hash_of(images)} {fisher} {SOURCE_IMAGES} {SOURCE_BATCH}")

    def source(self, run: Run) -> Source | None:
        """What the run's method needs to know before the stream; kept on disk once made."""
        if self.source_hash(run) is None:
            return None
        model, fisher = self.model(run), self._fisher_loader(run)
        cache = self._sources(run)
        if _is_file(run.model.source):
            return self._cached(
                ("source", run.model.source, id(model)),
                lambda: Source.load(str(run.model.source), fisher=fisher, cache=cache),
            )
        images = self._source_set(run)

        def opened() -> Source:
            loader = shuffled(images, SOURCE_IMAGES)
            path = self._source_path(run)
            if path.exists():
                found = Source.load(path, loader, fisher, cache=cache)
                self._opened["stored", path] = sorted(found.tensors)
                return found
            return Source.from_loader(
                model, loader, SOURCE_IMAGES, fisher, head=run.model.head, cache=cache
            )

        return self._cached(("source", self._source_path(run)), opened)

    @contextmanager
    def preparing(self, run: Run) -> Iterator[None]:
        """Only one process builds a given source; the others wait."""
        if self.source_hash(run) is None or _is_file(run.model.source):
            yield
            return
        path = self._source_path(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix("." + "-".join(run.composition.needs) + ".lock")):
            yield
            source, stored = self.source(run), ("stored", path)
            if source is not None and self._opened.get(stored) != sorted(source.tensors):
                self._opened[stored] = sorted(source.tensors)
                source.save(path)

    def _source_path(self, run: Run) -> Path:
        fisher = self.data_hash(run) if "fisher" in run.composition.needs else None
        images = self._hash_of(self._source_set(run))
        made_of = (self.model_hash(run), images, run.model.head, fisher)
        return self._sources(run) / f"{_digest(made_of)[:16]}.safetensors"

    def _fisher_loader(self, run: Run) -> DataLoader[tuple[Tensor, int]] | None:
        """Clean test images, as EATA's released code takes them, where the data has them."""
        if "fisher" not in run.composition.needs:
            return None
        names = [domain.name for domain in self.data(run).domains]
        return shuffled(self.data(run)[CLEAN]) if CLEAN in names else None


def shuffled(images: Images, limit: int | None = None) -> DataLoader[tuple[Tensor, int]]:
    """Batches in one fixed order that does not follow the classes, over some of the images."""
    order = np.random.default_rng(0).permutation(len(images))[:limit]
    return DataLoader(Subset(images, order.tolist()), batch_size=SOURCE_BATCH)


def _digest(what: object) -> str:
    return text_hash(repr(what))


def _is_file(source: str | None) -> bool:
    return source is not None and source.endswith(".safetensors")


def _hash_file(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"There is no source file {path}: make it with Source.save.")
    return file_hash(path)
