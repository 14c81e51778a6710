"""What is known before the stream: class prototypes and Fisher information of the source."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast import files
from holdfast.guard import InputRange, check_images
from holdfast.progress import progress
from holdfast.split import Network, at_least_float32, fingerprint
from holdfast.statistics import BatchStatistics, batch_norms
from holdfast.step import Step
from holdfast.words import listed

KIND = "a source"
STATISTICS = ("source", "batch")


class Source:
    """Prototypes are made at once; what only some methods need is made when one asks, then kept.

    `prototypes` are the class means of the raw features by true label, (classes, feature size),
    and `counts` says how many images stand behind each.
    """

    def __init__(
        self,
        model_hash: str,
        tensors: Mapping[str, Tensor],
        *,
        head: str | None = None,
        limit: int | None = None,
        fisher_samples: int | None = None,
        loader: Iterable[Any] | None = None,
        fisher: Iterable[Any] | None = None,
        input_range: InputRange = (0.0, 1.0),
    ):
        self.model_hash = model_hash
        self.tensors = dict(tensors)
        self.head = head
        self.limit = limit
        self.fisher_samples = fisher_samples
        self.input_range = input_range
        self._loader = loader
        self._fisher = fisher
        self._spent: list[Iterator[Any]] = []

    @classmethod
    def from_loader(
        cls,
        model: nn.Module,
        loader: Iterable[Any],
        limit: int | None = 100_000,
        fisher: Iterable[Any] | None = None,
        *,
        head: str | None = None,
        input_range: InputRange = (0.0, 1.0),
    ) -> Source:
        """Prototypes of the first `limit` images of a loader that yields (images, labels).

        `fisher` is another loader for the images of Fisher information (labels are not used);
        without it, the same loader serves.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"limit is a number of images, at least 1, or None, not {limit!r}.")
        network = Network(model, head=head)
        source = cls(
            fingerprint(model),
            {},
            head=network.head_name,
            limit=None if limit is None else int(limit),
            loader=loader,
            fisher=fisher,
            input_range=input_range,
        )
        source.prototypes_by(network, "source")
        missing = (source.counts == 0).nonzero().flatten().tolist()
        if missing:
            warnings.warn(
                f"{len(missing)} of {len(source.counts)} classes have no source image "
                f"({listed(missing)}): they are left out of source alignment.",
                stacklevel=2,
            )
        return source

    @property
    def prototypes(self) -> Tensor:
        return self.tensors["prototypes/source"]

    @property
    def counts(self) -> Tensor:
        return self.tensors["counts/source"]

    def prototypes_by(self, network: Network, statistics: str) -> Tensor:
        """Prototypes with the network normalised by the source's statistics, or by each batch's."""
        if network.head_name != self.head:
            raise ValueError(
                f"The source was made with the head {self.head!r}, the adapter's is "
                f"{network.head_name!r}: name the same layer, head=…, to both."
            )
        name = f"prototypes/{statistics}"
        if name not in self.tensors:
            with torch.inference_mode(False), torch.no_grad():
                self.tensors |= self._make_prototypes(network, statistics)
        found = self.tensors[name]
        if found.shape != (network.classes, network.feature_size):
            raise ValueError(
                f"The source has prototypes for {found.shape[0]} classes of feature size "
                f"{found.shape[1]}, but the model's head {network.head_name!r} has "
                f"{network.classes} classes and feature size {network.feature_size}: "
                "make the source with this model and this head."
            )
        return found.to(network.device, torch.promote_types(network.dtype, torch.float32))

    def fisher_of(
        self, network: Network, parameters: Mapping[str, nn.Parameter], samples: int
    ) -> dict[str, Tensor]:
        """Diagonal Fisher information of these parameters, by name."""
        names = {name: f"fisher/{name}" for name in parameters}
        if samples != self.fisher_samples or not self.tensors.keys() >= set(names.values()):
            with torch.inference_mode(False), torch.enable_grad():
                made = self._make_fisher(network, parameters, samples)
            if samples != self.fisher_samples:
                stale = [name for name in self.tensors if name.startswith("fisher/")]
                self.tensors = {n: t for n, t in self.tensors.items() if n not in stale}
            self.tensors |= {names[name]: value for name, value in made.items()}
            self.fisher_samples = samples
        return {name: self.tensors[key].to(parameters[name].device) for name, key in names.items()}

    def check_model(self, model_hash: str) -> None:
        if model_hash != self.model_hash:
            raise ValueError(
                f"This source belongs to another model: it was made with weights "
                f"{self.model_hash[:12]}…, this model's are {model_hash[:12]}…. Make it again with "
                "Source.from_loader(model, loader)."
            )

    def save(self, path: str | Path) -> None:
        header = {
            "model": self.model_hash,
            "head": self.head,
            "limit": self.limit,
            "fisher_samples": self.fisher_samples,
            "input_range": self.input_range,
        }
        files.write(path, KIND, header, self.tensors)

    @classmethod
    def load(
        cls,
        path: str | Path,
        loader: Iterable[Any] | None = None,
        fisher: Iterable[Any] | None = None,
    ) -> Source:
        """A saved source. The loaders are for what the file does not hold yet."""
        header, tensors = files.read(path, KIND)
        input_range = header["input_range"]
        return cls(
            header["model"],
            tensors,
            head=header["head"],
            limit=header["limit"],
            fisher_samples=header["fisher_samples"],
            loader=loader,
            fisher=fisher,
            input_range=None if input_range is None else (input_range[0], input_range[1]),
        )

    def _make_prototypes(self, network: Network, statistics: str) -> dict[str, Tensor]:
        if statistics == "batch":
            network = Network(network.plain_model(), head=network.head_name)
            BatchStatistics(batch_norms(network.model))
        classes, size = network.classes, network.feature_size
        # On the CPU: not every device has float64.
        sums = torch.zeros(classes, size, dtype=torch.float64)
        counts = torch.zeros(classes, dtype=torch.int64)
        loader = self._pass(self._loader, "prototypes")
        batches = _batches(loader, self.limit, self.input_range, network, "Source prototypes")
        for images, labels in batches:
            if statistics == "batch" and len(images) == 1 and batch_norms(network.model):
                continue  # one image has no batch statistics
            features = Step(network, images).features
            labels = _check_labels(labels, len(images), classes)
            sums.index_add_(0, labels, features.to(sums))
            counts += torch.bincount(labels, minlength=classes)
        means = sums / counts.clamp_min(1)[:, None]
        if not bool(means.isfinite().all()):
            raise ValueError("The model's features of the source images are NaN or Inf.")
        return {
            f"prototypes/{statistics}": means.to(torch.promote_types(network.dtype, torch.float32)),
            f"counts/{statistics}": counts,
        }

    def _make_fisher(
        self, network: Network, parameters: Mapping[str, nn.Parameter], samples: int
    ) -> dict[str, Tensor]:
        """Squared batch-mean gradients of the cross-entropy against the model's own labels,
        averaged over batches, in batch-statistics mode."""
        sums = {name: torch.zeros_like(at_least_float32(p)) for name, p in parameters.items()}
        count = 0
        loader = self._pass(self._loader if self._fisher is None else self._fisher, "Fisher")
        batches = _batches(loader, samples, self.input_range, network, "Fisher information")
        for images, _ in batches:
            if len(images) == 1 and batch_norms(network.model):
                continue  # one image has no batch statistics
            _, logits = network(images)
            loss = nn.functional.cross_entropy(logits, logits.detach().argmax(1))
            found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
            for total, gradient in zip(sums.values(), found, strict=True):
                if gradient is not None:
                    total += gradient.detach().to(total.dtype) ** 2
            count += 1
        if not count:
            raise ValueError(
                "The loader for Fisher information gave no batch of two or more images."
            )
        return {name: (total / count).cpu() for name, total in sums.items()}

    def _pass(self, loader: Iterable[Any] | None, what: str) -> Iterable[Any]:
        """The loader, for one more pass over it."""
        if loader is None:
            raise ValueError(
                f"This source holds no {what}, and no loader to make them from: load it with "
                "Source.load(path, loader=…), or make it with Source.from_loader(model, loader)."
            )
        if isinstance(loader, Iterator):
            if any(loader is one for one in self._spent):
                raise ValueError(
                    f"Making {what} takes a second pass over the loader, but it is a one-shot "
                    "iterator: give a DataLoader, a list, or another loader (fisher=…)."
                )
            self._spent.append(loader)
        return loader


def _batches(
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


def _check_labels(labels: object, images: int, classes: int) -> Tensor:
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
