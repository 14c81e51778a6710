"""What a method is set to work on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from torch import Tensor, nn

from holdfast.engine.checks import InputRange
from holdfast.engine.draws import Draws
from holdfast.engine.network import Network
from holdfast.engine.norms import ByBatch, Normalisation
from holdfast.parts.augment import Augment, Augmentation
from holdfast.parts.upkeep import Teacher
from holdfast.source.budgets import Budgets, budgets_key
from holdfast.source.gather import Gaussians
from holdfast.source.loaders import Replay
from holdfast.source.source import Source
from holdfast.source.styles import Styles, styles_key
from holdfast.source.work import Work

T = TypeVar("T")


@dataclass
class Task:
    """The network, what trains in it, what is known of its source, and randomness of its own.

    normalisation: by which statistics batch norm goes, in the network and in copies beside it.
    fresh: makes another copy of the source model; `companions` are those that were made, and
    `taken` names what was taken from the source.
    """

    network: Network
    parameters: Mapping[str, nn.Parameter]
    normalisation: Normalisation
    source: Source | None
    draws: Draws
    input_range: InputRange
    fresh: Callable[[], Network]
    companions: list[Network] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    _made: dict[Callable[[Task], object], object] = field(default_factory=dict)

    @cached_property
    def teacher(self) -> Teacher:
        """A mean teacher, normalised as the network is."""
        return Teacher(self._companion(), self.parameters)

    @cached_property
    def anchor(self) -> Network:
        """The source model for ever, normalised as the network is."""
        return self._companion()

    def _companion(self) -> Network:
        network = self.fresh()
        network.model.requires_grad_(False)
        network.normalise(self.normalisation)
        self.companions.append(network)
        return network

    def augment(self, kind: Augmentation) -> Augment:
        """Views of this kind, drawn from the adapter's own randomness."""
        return Augment(kind, self.draws, self.input_range)

    def cached(self, make: Callable[[Task], T]) -> T:
        """What `make` makes for this task, made once and shared by all slots that ask."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]  # type: ignore[return-value]

    def prototypes(self, statistics: str) -> tuple[Tensor, Tensor]:
        """Source prototypes, and which classes have one."""
        name = f"counts/{statistics}"
        prototypes = self._source(f"prototypes/{statistics}", name).prototypes_by(
            self.network, statistics, self.fresh
        )
        return prototypes, (self._source().tensors[name] > 0).to(prototypes.device)

    def class_width(self, statistics: str) -> float:
        """How far a source image's feature lies from its prototype, as a root mean square."""
        names = (f"{kind}/{statistics}" for kind in ("prototypes", "counts", "spread"))
        return self._source(*names).class_width(self.network, statistics, self.fresh)

    def mean_feature(self, statistics: str) -> Tensor:
        """The mean feature of all source images: that of the prototypes, by their counts."""
        prototypes, _ = self.prototypes(statistics)
        counts = self._source().tensors[f"counts/{statistics}"].double()
        mean = counts @ prototypes.cpu().double() / counts.sum()
        return mean.to(prototypes)

    def fisher(self, samples: int) -> dict[str, Tensor]:
        """Diagonal Fisher information of what trains, by name: by plain batch statistics, since
        others may keep gradients back."""
        source, network = self._source("fisher/"), self.network
        parameters: Mapping[str, nn.Parameter] = self.parameters
        if self.normalisation != ByBatch():
            network = self.fresh()
            network.normalise(ByBatch())
            own = dict(network.model.named_parameters())
            parameters = {name: own[name] for name in parameters}
            for parameter in parameters.values():
                parameter.requires_grad_(True)  # a caller's model may be frozen
        return source.fisher_of(network, parameters, samples)

    def gaussians(self, *, diagonal: bool) -> Gaussians:
        """Gaussians of the source features, by predicted class and over all."""
        kind = "diagonal" if diagonal else "full"
        source = self._source(f"gaussians/{kind}/", "gaussians/all/")
        return source.gaussians_of(self.network, self.fresh, diagonal=diagonal)

    def budgets(self, *, samples: int = 3000, skew: float = 0.1, quantile: float = 0.95) -> Budgets:
        """How far batches of source images lie from the source, in each batch norm layer."""
        source = self._source(budgets_key(samples, skew, quantile))
        return source.budgets_of(
            self.network, self.fresh, samples=samples, skew=skew, quantile=quantile
        )

    def styles(self, *, layers: int, quantile: float) -> Styles:
        """How far apart styles of source batches are, behind so many convolutions."""
        source = self._source(styles_key(layers, quantile))
        return source.styles_of(self.network, self.fresh, layers=layers, quantile=quantile)

    @property
    def batch_size(self) -> int:
        """Of the source's loader."""
        return self._source("loader/batch_size").batch_size

    @cached_property
    def replay(self) -> Replay:
        """Labelled source batches by number, in the loader's order, cycling."""
        return self._source().replay(self.network)

    def work(self, text: str, images: int) -> Work:
        """Work on the source's first images that takes long, named by all that it depends on
        beside the source."""
        work = self._source().work(text, self.network, images)
        self.taken.update(work.names)
        return work

    def _source(self, *names: str) -> Source:
        if self.source is None:
            raise ValueError("This method needs a source: Source.from_loader(model, loader).")
        self.taken.update(names)
        return self.source
