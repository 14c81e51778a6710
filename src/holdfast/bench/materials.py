"""What runs share and take long to open: the model, the data, what is known of its source."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock
from torch import Tensor
from torch.utils.data import DataLoader

from holdfast.bench.code import code_hashes
from holdfast.bench.kept import beside, has_features, stored, without_health
from holdfast.bench.opening import (
    SOURCE_BATCH,
    check_labels_known,
    check_not_the_source,
    open_alike,
    shuffled,
)
from holdfast.bench.options import DRIFTED_IMAGES
from holdfast.bench.plan import Run
from holdfast.bench.shown import Shown
from holdfast.data.cache import cached
from holdfast.data.cache import fingerprint as data_fingerprint
from holdfast.data.glyphs import Glyphs
from holdfast.data.holdout import Drifted, drifted
from holdfast.data.images import Images
from holdfast.data.readers.layouts import CLEAN
from holdfast.source.advice import FEWEST_LABELLED
from holdfast.source.source import Source
from holdfast.util.files import file_hash, text_hash

# The images that models of these data were trained on, where it is known.
SOURCES = {
    "glyphs-c": "glyphs",
    "cifar10-c": "cifar10",
    "cifar100-c": "cifar100",
    "imagenet-c": "imagenet",
}

# At most as many images as the paper takes for its prototypes; fewer where images are drawn, which
# takes time.
SOURCE_IMAGES = 100_000
DRAWN_IMAGES = 10_000

# How many images a source for health alone is made of, where the method needs none.
HEALTH_SOURCE = 3_000


class Materials(Shown):
    """All that a run is made of, opened once."""

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

    def source_images(self, run: Run) -> Images:
        """The images that the model was trained on, or some of them."""
        name = run.model.source or SOURCES.get(run.data.name)
        if name is None:
            method, needs = run.composition.names, run.composition.needs
            who = f"{method} needs {' and '.join(needs)}" if needs else "Health goes by images"
            raise ValueError(
                f"{who} of the source data, and "
                f"nothing is known of what the model was trained on: pass --source, a saved Source "
                "or a clean set of training images."
            )
        return self.clean_set(run, name, "train")

    def validation_images(self, run: Run) -> Images | None:
        """Images that the model was not trained on, where any are named: what health is calibrated
        on in place of the source's."""
        name = run.watch.validation
        if name is None:
            return None
        images = self.clean_set(run, name, "test")
        if len(images) < FEWEST_LABELLED:
            raise ValueError(
                f"--validation {name} has {len(images)} images, which tell next to nothing of "
                f"accuracy: give {FEWEST_LABELLED} at least; {DRIFTED_IMAGES} are enough."
            )
        return images

    def _check_validation(self, run: Run, images: Images) -> None:
        """Whether estimates that are calibrated on these images hold for those that are shown."""
        option = f"--validation {run.watch.validation}"
        self._check_size(run, images, option)
        check_labels_known(images, self.classes(run), option)
        clean = [each.dataset for each in self.data(run).domains if each.name == CLEAN]
        if self._hash_of(images) in map(self._hash_of, clean):
            raise ValueError(
                f"{option} has the very images that are shown, so that estimates would be made "
                "with their labels: give others that the model was not trained on."
            )

    def _check_size(self, run: Run, images: Images, option: str) -> None:
        """Of images that health goes by."""
        own, shown = (each.image(0).shape for each in (images, self.data(run).domains[-1].dataset))
        if own != shown:
            sizes = " and ".join("×".join(map(str, shape)) for shape in (own, shown))
            raise ValueError(
                f"{option} has images of another size than those that are shown ({sizes}), so that "
                "drift and estimates of health would be far off: give images of that size "
                f"(--size {shown[-1]} where they lie in a folder), or --no-health."
            )

    def clean_set(self, run: Run, name: str, split: str) -> Images:
        def opened() -> Images:
            if name == "glyphs" and split == "train":
                images: Images = Glyphs("train", DRAWN_IMAGES)
            else:
                images = open_alike(run.data, name, split=split, classes=run.data.classes)
            fingerprint = data_fingerprint(images)
            stored = cached(images, self._images / f"{fingerprint[:16]}.images")
            self._opened["hash", id(stored)] = fingerprint
            return stored

        return self._cached((f"{split} set", name, run.data), opened)

    def _fisher_hash(self, run: Run) -> str | None:
        return self.data_hash(run) if "fisher" in run.composition.needs else None

    def source_hash(self, run: Run) -> str | None:
        """Hash of what the source is made from; None where the run's method needs none."""
        if not (run.composition.needs or run.analysis):
            return None
        path = source_file(run)
        if path is not None:
            return self._file_hash(path)
        images, fisher = self._hash_of(self.source_images(run)), self._fisher_hash(run) or ""
        return _digest(f"{images} {fisher} {SOURCE_IMAGES} {_source_batch(run)}")

    def health_hash(self, run: Run) -> str | None:
        """Hash of what estimates of accuracy are made from; None where none are wanted, or where
        the model's training images or its features are not known."""
        if not (run.watch.health and self._has_features(run)):
            return None
        path, validation = source_file(run), self.validation_images(run)
        if validation is not None:
            self._check_validation(run, validation)
        if path is not None:
            made_of = self._file_hash(path)
        else:
            try:
                images = self.source_images(run)
            except (FileNotFoundError, ValueError):
                if run.model.source is not None or validation is not None:
                    raise  # what was asked for has to be there
                return None
            self._check_size(run, images, f"--source {run.model.source or SOURCES[run.data.name]}")
            if validation is not None:
                hashes = self._hash_of(validation), self._hash_of(images)
                check_not_the_source(*hashes, f"--validation {run.watch.validation}")
            made_of = _digest(f"{self._hash_of(images)} {HEALTH_SOURCE} {DRIFTED_IMAGES}")
        return made_of if validation is None else _digest((made_of, self._hash_of(validation)))

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
        model, file = self.model(run), source_file(run)
        fisher, cache = self._fisher_loader(run), self._sources(run)

        validation = self.validation_images(run) if health else None
        path = self._source_path(run)

        def calibrated_on(images: Images) -> Drifted | None:
            return drifted(shuffled(images), images=DRIFTED_IMAGES) if health else None

        def loaded(path: Path, loader: Any = None, under_drift: Drifted | None = None) -> Source:
            source = Source.load(path, loader, fisher, drifted=under_drift, cache=cache)
            if not health:
                source.tensors = without_health(source.tensors)
            return source

        def given(file: Path) -> Source:
            if validation is None:
                return loaded(file)
            kept = path.exists()  # once: another process may make it meanwhile
            source = loaded(path if kept else file, None, calibrated_on(validation))
            if not kept:  # what the file holds was calibrated on other images
                source.tensors = without_health(source.tensors)
            return source

        if file is not None:
            key = "source", path, id(model), health
            return self._cached(key, lambda: given(file))
        images = self.source_images(run)

        def opened() -> Source:
            limit = SOURCE_IMAGES if needed else HEALTH_SOURCE
            loader = shuffled(images, limit, _source_batch(run))
            under_drift = calibrated_on(images if validation is None else validation)
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
        by_file = source_file(run) is not None and run.watch.validation is None
        if known == (None, None) or by_file:
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
        """Where what is made of the source is kept; of a saved one, what that lacks."""
        file, validation = source_file(run), self.validation_images(run)
        images = self._hash_of(self.source_images(run)) if file is None else self._file_hash(file)
        made_of = [self.model_hash(run), images, run.model.head, self._fisher_hash(run)]
        if self.source_hash(run) is None:
            made_of.append("health alone")
        if validation is not None:
            made_of.append(f"calibrated on {self._hash_of(validation)}")
        if _source_batch(run) != SOURCE_BATCH:
            made_of.append(f"batches of {_source_batch(run)}")
        return self._sources(run) / f"{_digest(made_of)[:16]}.safetensors"

    def _fisher_loader(self, run: Run) -> DataLoader[tuple[Tensor, int]] | None:
        """Clean test images, as EATA's released code takes them, where the data has them."""
        if "fisher" not in run.composition.needs:
            return None
        names = [domain.name for domain in self.data(run).domains]
        return shuffled(self.data(run)[CLEAN]) if CLEAN in names else None


def _source_batch(run: Run) -> int:
    """Where styles matter, source batches are as large as the stream's: styles depend on it."""
    return run.resolved_stream.batch if "styles" in run.composition.needs else SOURCE_BATCH


def _digest(content: object) -> str:
    return text_hash(repr(content))


def source_file(run: Run) -> Path | None:
    """Where a saved source lies, if that is what was given."""
    source = run.model.source
    return Path(source) if source is not None and source.endswith(".safetensors") else None
