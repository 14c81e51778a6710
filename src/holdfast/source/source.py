"""What is known before the stream: prototypes, Fisher information, Gaussians, images to replay."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.engine.checks import InputRange
from holdfast.engine.network import Network, fingerprint
from holdfast.engine.norms import ByBatch
from holdfast.engine.step import Step
from holdfast.source.agreement import find_mistake
from holdfast.source.fisher import gather_fisher
from holdfast.source.gaussians import Gaussians, gather_gaussians
from holdfast.source.loaders import Replay, check_labels, checked_batches
from holdfast.source.work import Order, Work
from holdfast.util import files
from holdfast.util.hashing import tensor_hash
from holdfast.util.words import listed

KIND = "a source"

# What tells one source's data from another's: long work is kept under a key made of these.
WORKED_ON = ("prototypes/source", "counts/source", "loader/batch_size")


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
        cache: str | Path | None = None,
    ):
        self.model_hash = model_hash
        self.tensors = dict(tensors)
        self.head = head
        self.limit = limit
        self.fisher_samples = fisher_samples
        self.input_range = input_range
        self._loader = loader
        self._fisher = fisher
        self.cache = None if cache is None else Path(cache)
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
        cache: str | Path | None = None,
    ) -> Source:
        """Prototypes of the first `limit` images of a loader that yields (images, labels).

        `fisher` is another loader for the images of Fisher information (labels are not used);
        without it, the same loader serves. `cache` is a folder for work that takes long (RMT's
        warm-up): there it survives a kill, goes on where it stopped, and serves other processes.

        >>> import torch, holdfast
        >>> from holdfast.models import resnet20
        >>> loader = [(torch.rand(20, 3, 32, 32), torch.arange(20) % 10)]
        >>> holdfast.Source.from_loader(resnet20(10), loader)
        <Source of 20 images, 10 classes, 64 features: prototypes>
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
            cache=cache,
        )
        source.prototypes_by(network, "source", lambda: network)
        if missing := (source.counts == 0).nonzero().flatten().tolist():
            warnings.warn(
                f"{len(missing)} of {len(source.counts)} classes have no source image "
                f"({listed(missing)}): they are left out of source alignment.",
                stacklevel=2,
            )
        source._warn_of_labels()
        return source

    def __repr__(self) -> str:
        parts = dict.fromkeys(name.partition("/")[0] for name in self.tensors)
        made = [name for name in parts if name not in ("counts", "loader", "predicted")]
        size = ""
        if "prototypes/source" in self.tensors:
            classes, features = self.prototypes.shape
            images = int(self.counts.sum())
            size = f" of {images} images, {classes} classes, {features} features"
        return f"<Source{size}: {listed(made) or 'nothing made yet'}>"

    @property
    def prototypes(self) -> Tensor:
        return self.tensors["prototypes/source"]

    @property
    def counts(self) -> Tensor:
        return self.tensors["counts/source"]

    @property
    def accuracy(self) -> float | None:
        """The share of its images that the model takes for what their labels say, if known."""
        found = self.tensors.get("predicted/source")
        return None if found is None else float((found[0] == found[1]).double().mean())

    def find_label_mistake(self) -> str | None:
        """What seems wrong with its labels, and what to do."""
        if "predicted/source" not in self.tensors:
            return None
        labels, predicted = self.tensors["predicted/source"].long()
        return find_mistake(labels, predicted, len(self.counts))

    def _warn_of_labels(self) -> None:
        mistake = self.find_label_mistake()
        if mistake is not None:
            warnings.warn(f"The source's labels: {mistake}", stacklevel=3)

    @property
    def batch_size(self) -> int:
        """How many images the loader's first batch had."""
        return int(self.tensors["loader/batch_size"])

    def prototypes_by(
        self, network: Network, statistics: str, fresh: Callable[[], Network]
    ) -> Tensor:
        """Prototypes with the network normalised by the source's statistics, or by each batch's.

        `fresh` gives a copy of the source model to make them with.
        """
        self._check_head(network)
        name = f"prototypes/{statistics}"
        if name not in self.tensors:
            with torch.inference_mode(False), torch.no_grad():
                self.tensors |= self._make_prototypes(fresh(), statistics)
        found = self.tensors[name]
        if found.shape != (network.classes, network.feature_size):
            raise ValueError(
                f"The source has prototypes for {found.shape[0]} classes of feature size "
                f"{found.shape[1]}, but the model's head {network.head_name!r} has "
                f"{network.classes} classes and feature size {network.feature_size}: "
                "make the source with this model and this head."
            )
        return found.to(network.device, torch.promote_types(network.dtype, torch.float32))

    def gaussians_of(
        self, network: Network, fresh: Callable[[], Network], *, diagonal: bool
    ) -> Gaussians:
        """Gaussians of the features by predicted class, full or diagonal, and one over all."""
        self._check_head(network)
        kind = "diagonal" if diagonal else "full"
        if f"gaussians/{kind}/mean" not in self.tensors:
            loader = self._pass(self._loader, "Gaussians")
            source = fresh()
            with torch.inference_mode(False), torch.no_grad():
                batches = checked_batches(
                    loader, self.limit, self.input_range, source, "Source Gaussians"
                )
                self.tensors |= gather_gaussians(source, batches, diagonal=diagonal)
        return Gaussians.of(self.tensors, kind, network)

    def replay(self, network: Network) -> Replay:
        """Labelled source batches, in the loader's order, cycling."""
        self._pass(self._loader, "replay", again=True)
        return Replay(
            lambda: self._pass(self._loader, "replay", again=True), network, self.input_range
        )

    def work_key(self, text: str, network: Network, images: int) -> str:
        """What names a piece of work on the loader's first images: a text, this model, the data."""
        order = self.order_name(images)
        if order not in self.tensors:
            what = "Images that are worked on"
            loader = self._pass(self._loader, "order of images", again=True)
            found = Order()
            for batch in checked_batches(loader, images, self.input_range, network, what):
                found.update(*batch)
            self.tensors[order] = found.digest
        data = {name: self.tensors[name] for name in (*WORKED_ON, order)}
        return tensor_hash(data, f"{self.model_hash} {self.head} {text}")

    def work(self, key: str) -> Work:
        """The piece of work of this key."""
        return Work(key, self.tensors, self.model_hash, self.cache)

    def order_name(self, images: int) -> str:
        """Under which a digest of so many of the loader's images stands."""
        beyond = self.limit is not None and images > self.limit
        return f"loader/order/{images}" if beyond else "loader/order"

    def _check_head(self, network: Network) -> None:
        if network.head_name != self.head:
            raise ValueError(
                f"The source was made with the head {self.head!r}, the adapter's is "
                f"{network.head_name!r}: name the same layer, head=…, to both."
            )

    def fisher_of(
        self, network: Network, parameters: Mapping[str, nn.Parameter], samples: int
    ) -> dict[str, Tensor]:
        """Diagonal Fisher information of these parameters, by name."""
        names = {name: f"fisher/{name}" for name in parameters}
        if samples != self.fisher_samples or not self.tensors.keys() >= set(names.values()):
            with torch.inference_mode(False), torch.enable_grad():
                made = self._make_fisher(network, parameters, samples)
            if samples != self.fisher_samples:
                for stale in [name for name in self.tensors if name.startswith("fisher/")]:
                    del self.tensors[stale]
            self.tensors |= {names[name]: value for name, value in made.items()}
            self.fisher_samples = samples
        return {name: self.tensors[key].to(parameters[name].device) for name, key in names.items()}

    @property
    def has_loader(self) -> bool:
        return self._loader is not None

    def holding(self, tensors: Mapping[str, Tensor], fisher_samples: int | None) -> Source:
        """A copy with its loaders that holds these tensors, in place of its own of that name."""
        other = copy.copy(self)
        other.tensors = {**self.tensors, **tensors}
        if fisher_samples is not None:
            other.fisher_samples = fisher_samples
        return other

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
        *,
        cache: str | Path | None = None,
    ) -> Source:
        """A saved source. The loaders are for what the file does not hold yet, and for replay."""
        header, tensors = files.read(path, KIND)
        input_range = header["input_range"]
        source = cls(
            header["model"],
            tensors,
            head=header["head"],
            limit=header["limit"],
            fisher_samples=header["fisher_samples"],
            loader=loader,
            fisher=fisher,
            cache=cache,
            input_range=None if input_range is None else (input_range[0], input_range[1]),
        )
        source._warn_of_labels()
        return source

    def _make_prototypes(self, network: Network, statistics: str) -> dict[str, Tensor]:
        if statistics == "batch":
            network.normalise(ByBatch())
        classes, size = network.classes, network.feature_size
        # On the CPU: not every device has float64.
        sums = torch.zeros(classes, size, dtype=torch.float64)
        counts = torch.zeros(classes, dtype=torch.int64)
        loader = self._pass(self._loader, "prototypes")
        batches = checked_batches(
            loader, self.limit, self.input_range, network, "Source prototypes"
        )
        first, order, predicted = 0, Order(), list[Tensor]()
        for images, labels in batches:
            first = first or len(images)
            order.update(images, labels)
            if len(images) == 1 and network.by_batch:
                continue  # one image has no batch statistics
            step = Step(network, images)
            features = step.features.to(sums)
            labels = check_labels(labels, len(images), classes)
            sums.index_add_(0, labels, features)
            counts += torch.bincount(labels, minlength=classes)
            predicted.append(torch.stack([labels, step.labels.cpu()]).int())
        means = sums / counts.clamp_min(1)[:, None]
        if not bool(means.isfinite().all()):
            raise ValueError("The model's features of the source images are NaN or Inf.")
        return {
            f"prototypes/{statistics}": means.to(torch.promote_types(network.dtype, torch.float32)),
            f"counts/{statistics}": counts,
            f"predicted/{statistics}": torch.cat(predicted, 1),
            "loader/batch_size": torch.tensor(first),
            "loader/order": order.digest,
        }

    def _make_fisher(
        self, network: Network, parameters: Mapping[str, nn.Parameter], samples: int
    ) -> dict[str, Tensor]:
        loader = self._pass(self._loader if self._fisher is None else self._fisher, "Fisher")
        batches = checked_batches(loader, samples, self.input_range, network, "Fisher information")
        return gather_fisher(network, batches, parameters)

    def _pass(
        self, loader: Iterable[Any] | None, what: str, *, again: bool = False
    ) -> Iterable[Any]:
        """The loader, for one more pass over it, or (`again`) for any number of them."""
        if loader is None:
            raise ValueError(
                f"This source holds no {what}, and no loader to make them from: load it with "
                "Source.load(path, loader=…), or make it with Source.from_loader(model, loader)."
            )
        if isinstance(loader, Iterator):
            if again or any(loader is one for one in self._spent):
                raise ValueError(
                    f"Making {what} takes a second pass over the loader, but it is a one-shot "
                    "iterator: give a DataLoader, a list, or another loader (fisher=…)."
                )
            self._spent.append(loader)
        return loader
