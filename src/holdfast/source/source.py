"""What is known before the stream: prototypes, Fisher information, Gaussians, budgets, images to
replay."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast.engine.checks import InputRange
from holdfast.engine.estimators import Calibration
from holdfast.engine.network import Network, fingerprint
from holdfast.engine.norms import ByBatch
from holdfast.engine.options import check_range
from holdfast.source.advice import (
    CALIBRATED_BEFORE,
    CALIBRATED_FOR_OTHERS,
    MADE_BEFORE,
    NO_BUDGETS,
    warn_of_few,
    warn_of_few_labelled,
)
from holdfast.source.budgets import KEPT, Budgets, budgets_key, make_budgets
from holdfast.source.contents import check_contents
from holdfast.source.gather import Gaussians, gather_fisher, gather_gaussians, gather_prototypes
from holdfast.source.known import Known, health_key
from holdfast.source.loaders import CLEAN, DriftedBatch, Order, check_limit, drifted_batches
from holdfast.source.passes import Passes
from holdfast.source.styles import Styles, make_styles, styles_key
from holdfast.source.work import Work
from holdfast.util import files
from holdfast.util.files import tensor_hash
from holdfast.util.words import listed

KIND = "a source"

# What else a file's header tells.
SAVED: dict[str, files.Types] = {
    "head": str | None,
    "limit": int | None,
    "fisher_samples": int | None,
    "input_range": list | None,
}

# What tells one source's data from another's: long work is kept under a key made of these.
WORKED_ON = ("prototypes/source", "counts/source", "loader/batch_size")


@dataclass(eq=False, repr=False)
class Source(Known, Passes):
    """Prototypes are made at once; what only some methods need is made when one asks, then kept."""

    _: KW_ONLY
    head: str | None = None
    fisher_samples: int | None = None
    cache: str | Path | None = None

    @classmethod
    def from_loader(
        cls,
        model: nn.Module,
        loader: Iterable[Any],
        limit: int | None = 100_000,
        fisher: Iterable[Any] | None = None,
        *,
        drifted: Iterable[Any] | None = None,
        head: str | None = None,
        input_range: InputRange = (0.0, 1.0),
        cache: str | Path | None = None,
    ) -> Source:
        """Prototypes of the first `limit` images of a loader that yields (images, labels), best in
        random order and not augmented.

        `fisher` is another loader for the images of Fisher information (labels are not used);
        without it, the same loader serves. `drifted` are labelled source images under drift, as
        `holdfast.data.holdout.drifted(loader)` makes them: with these, `adapter.health` estimates
        accuracy. `cache` is a folder for work that takes long (RMT's
        warm-up): there it survives a kill, goes on where it stopped, and serves other processes.

        >>> import torch, holdfast
        >>> from holdfast.models import resnet20
        >>> loader = [(torch.rand(20, 3, 32, 32), torch.arange(20) % 10)]
        >>> holdfast.Source.from_loader(resnet20(10), loader)
        <Source of 20 images, 10 classes, 64 features: prototypes>
        """
        if limit is not None:
            limit = check_limit(limit)
        network = Network(model, head=head)
        source = cls(
            fingerprint(model),
            {},
            head=network.head_name,
            limit=limit,
            loader=loader,
            fisher=fisher,
            drifted=drifted,
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

    def prototypes_by(
        self, network: Network, statistics: str, fresh: Callable[[], Network]
    ) -> Tensor:
        """Prototypes with the network normalised by the source's statistics, or by each batch's.

        `fresh` gives a copy of the source model to make them with.
        """
        self._check_head(network)
        name = f"prototypes/{statistics}"
        if name not in self.tensors:
            self.tensors |= self._gather(fresh, statistics, "prototypes")
        prototypes = self.tensors[name]
        if prototypes.shape != (network.classes, network.feature_size):
            raise ValueError(
                f"The source has prototypes for {prototypes.shape[0]} classes of feature size "
                f"{prototypes.shape[1]}, but the model's head {network.head_name!r} has "
                f"{network.classes} classes and feature size {network.feature_size}: "
                "make the source with this model and this head."
            )
        return prototypes.to(network.device, network.full_dtype)

    def class_width(self, network: Network, statistics: str, fresh: Callable[[], Network]) -> float:
        """How wide classes are; made where it is not known."""
        self.prototypes_by(network, statistics, fresh)
        name = f"spread/{statistics}"
        if name not in self.tensors:
            # An older file lacks it: only this is made, so that all else stays.
            made = "width of classes (σ², which balance=auto goes by)"
            self.tensors[name] = self._gather(fresh, statistics, made)[name]
        return self.width_of_classes(statistics)

    def _gather(
        self, fresh: Callable[[], Network], statistics: str, made: str
    ) -> dict[str, Tensor]:
        """A pass over the source for prototypes, and what is made along with them."""
        with torch.inference_mode(False), torch.no_grad():
            source = fresh()
            if statistics == "batch":
                source.normalise(ByBatch())
            batches = self._batches(source, "Source prototypes", made, self.limit)
            return gather_prototypes(source, batches, statistics)

    def gaussians_of(
        self, network: Network, fresh: Callable[[], Network], *, diagonal: bool
    ) -> Gaussians:
        """Gaussians of the features by predicted class, full or diagonal, and one over all."""
        self._check_head(network)
        kind = "diagonal" if diagonal else "full"
        if f"gaussians/{kind}/mean" not in self.tensors:
            with torch.inference_mode(False), torch.no_grad():
                source = fresh()
                batches = self._batches(source, "Source Gaussians", "Gaussians", self.limit)
                self.tensors |= gather_gaussians(source, batches, diagonal=diagonal)
        return Gaussians.of(self.tensors, kind, network)

    def budgets_of(
        self,
        network: Network,
        fresh: Callable[[], Network],
        *,
        samples: int = 3000,
        skew: float = 0.1,
        quantile: float = 0.95,
    ) -> Budgets:
        """How far batches of the first `samples` images lie from all of them, in each layer."""
        self._check_head(network)
        key = budgets_key(samples, skew, quantile)
        if f"{key}limits" not in self.tensors:
            if self.loader is None and any(_is_older(name) for name in self.tensors):
                raise ValueError(MADE_BEFORE)
            with torch.inference_mode(False), torch.no_grad():
                source = fresh().uncompiled()
                limit = samples if self.limit is None else min(samples, self.limit)
                batches = self._batches(source, "Source budgets", "budgets", limit)
                made = make_budgets(source, batches, skew=skew, quantile=quantile)
                warn_of_few(int(self.counts.sum()), samples)
                self.tensors |= {f"{key}{name}": tensor for name, tensor in made.items()}
        return Budgets.of(files.under(key, self.tensors), network)

    def styles_of(
        self, network: Network, fresh: Callable[[], Network], *, layers: int, quantile: float
    ) -> Styles:
        """How far apart styles of batches are, behind so many convolutions."""
        key = styles_key(layers, quantile)
        if f"{key}limit" not in self.tensors:
            with torch.inference_mode(False), torch.no_grad():
                source = fresh().uncompiled()

                def one_pass(number: int) -> Iterator[tuple[Tensor, object]]:
                    titles = "Source styles", "styles"
                    return self._batches(source, *titles, self.limit, again=True, number=number)

                made = make_styles(source, one_pass, layers=layers, quantile=quantile)
                self.tensors |= {f"{key}{name}": tensor for name, tensor in made.items()}
        return Styles.of(files.under(key, self.tensors), network)

    def can_calibrate(self, answers: str) -> bool:
        """Whether it knows what answers of this kind are worth, or can find out."""
        can = self.drifted is not None or self.is_calibrated(answers)
        if (
            can
            and self.loader is None
            and not any(name.startswith("budgets/") for name in self.tensors)
        ):
            raise ValueError(NO_BUDGETS)
        calibrated = [name for name in self.tensors if name.startswith("health/")]
        if calibrated and not can:
            older = any(name.endswith(f"/{answers}/rows") for name in calibrated)
            warnings.warn(CALIBRATED_BEFORE if older else CALIBRATED_FOR_OTHERS, stacklevel=5)
        return can

    def calibration_of(
        self, answers: str, network: Network, make: Callable[[Iterable[DriftedBatch]], Calibration]
    ) -> Calibration:
        """What answers of this kind are worth under drift, by labelled source images."""
        self._check_head(network)
        key = health_key(answers)
        if not self.is_calibrated(answers):
            images = 0

            def counted(batches: Iterable[DriftedBatch]) -> Iterator[DriftedBatch]:
                nonlocal images
                for batch in batches:
                    images += len(batch[0]) * (batch[2] == CLEAN)
                    yield batch

            with torch.inference_mode(False), torch.no_grad():
                given = self._pass(self.drifted, "calibration of health", again=True)
                made = make(counted(drifted_batches(given, self.input_range, network)))
                warn_of_few_labelled(images)
                self.tensors |= {f"{key}{name}": value for name, value in made.tensors.items()}
        return Calibration.of(files.under(key, self.tensors))

    def work(self, text: str, network: Network, images: int) -> Work:
        """Work under a name, on this model and so many of the loader's first images."""
        beyond = self.limit is not None and images > self.limit
        order = f"loader/order/{images}" if beyond else "loader/order"
        if order not in self.tensors:
            image_order = Order()
            titles = "Images that are worked on", "order of images"
            for batch in self._batches(network, *titles, images, again=True):
                image_order.update(*batch)
            self.tensors[order] = image_order.digest
        data = {name: self.tensors[name] for name in (*WORKED_ON, order)}
        key = tensor_hash(data, f"{self.model_hash} {self.head} {text}")
        names = (*data, f"work/{key}/")
        return Work(key, names, self.model_hash, self.tensors, self.cache)

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
                loader = self.loader if self.fisher is None else self.fisher
                titles = "Fisher information", "Fisher"
                batches = self._batches(network, *titles, samples, loader=loader)
                made = gather_fisher(network, batches, parameters)
            if samples != self.fisher_samples:
                for stale in [name for name in self.tensors if name.startswith("fisher/")]:
                    del self.tensors[stale]
            self.tensors |= {names[name]: value for name, value in made.items()}
            self.fisher_samples = samples
        fisher = {name: self.tensors[key] for name, key in names.items()}
        for name, parameter in parameters.items():
            if fisher[name].shape != parameter.shape:
                raise ValueError(
                    f"The source's Fisher information of {name} has the shape "
                    f"{tuple(fisher[name].shape)}; expected {tuple(parameter.shape)}: make the "
                    "source again."
                )
        return {name: tensor.to(parameters[name].device) for name, tensor in fisher.items()}

    def holding(self, tensors: Mapping[str, Tensor], fisher_samples: int | None) -> Source:
        """A copy with its loaders that holds these tensors, in place of its own of that name."""
        copied = copy.copy(self)
        copied.tensors = {**self.tensors, **tensors}
        if fisher_samples is not None:
            copied.fisher_samples = fisher_samples
        return copied

    def check_model(self, model_hash: str) -> None:
        if model_hash != self.model_hash:
            raise ValueError(
                f"This source belongs to another model: it was made with weights "
                f"{self.model_hash[:12]}…, this model's are {model_hash[:12]}…. Make it again with "
                "Source.from_loader(model, loader)."
            )

    def save(self, path: str | Path) -> None:
        header = {"model": self.model_hash, **{name: getattr(self, name) for name in SAVED}}
        files.write(path, KIND, header, self.tensors)

    @classmethod
    def load(
        cls,
        path: str | Path,
        loader: Iterable[Any] | None = None,
        fisher: Iterable[Any] | None = None,
        *,
        drifted: Iterable[Any] | None = None,
        cache: str | Path | None = None,
    ) -> Source:
        """A saved source. The loaders are for what the file does not hold yet, and for replay."""
        header, tensors = files.read(path, KIND)
        files.check_header(path, header, SAVED | {"model": str})
        try:
            check_contents(tensors)
        except ValueError as error:
            raise ValueError(f"{path}: {error}. Make it again, with Source.from_loader.") from None
        known = {name: header[name] for name in SAVED}
        if known["input_range"] is not None:
            known["input_range"] = check_range(known["input_range"])
        known |= {"loader": loader, "fisher": fisher, "drifted": drifted, "cache": cache}
        source = cls(header["model"], tensors, **known)
        source._warn_of_labels()
        return source


def _is_older(name: str) -> bool:
    """Whether it names budgets of a rule before."""
    return name.startswith("budgets/") and not name.startswith(KEPT)
