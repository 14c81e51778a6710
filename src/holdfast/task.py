"""What a method is set to work on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from holdfast.draws import Draws
from holdfast.guard import InputRange
from holdfast.source import Source
from holdfast.split import Network


@dataclass(frozen=True)
class Task:
    """The network, what trains in it, what is known of its source, and randomness of its own."""

    network: Network
    parameters: Mapping[str, nn.Parameter]
    source: Source | None
    draws: Draws
    input_range: InputRange

    def prototypes(self, statistics: str) -> tuple[Tensor, Tensor]:
        """Source prototypes, and which classes have one."""
        source = self._source()
        found = source.prototypes_by(self.network, statistics)
        return found, (source.tensors[f"counts/{statistics}"] > 0).to(found.device)

    def fisher(self, samples: int) -> dict[str, Tensor]:
        return self._source().fisher_of(self.network, self.parameters, samples)

    def _source(self) -> Source:
        if self.source is None:
            raise ValueError("This method needs a source: Source.from_loader(model, loader).")
        return self.source
