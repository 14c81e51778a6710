"""Where features lie, domain by domain: the paper's distances, and similarities of prototypes.

With P* the mean feature f of a domain's images by true class, each is a mean over classes c of

    gap                  ‖Ps[c] − P*[c]‖²
    intra                mean over the images of c of ‖P*[c] − f‖²
    inter                mean over the other classes i of ‖P*[c] − P*[i]‖²
    ratio                intra[c] / inter[c]
    similarity_source    cos(Pt[c], Ps[c])
    similarity_target    cos(Pt[c], P*[c])

Where the paper speaks of MSE its formulas have squared norms, which sum over feature dimensions and
are not divided by their number. So do these. Features are those at the time the images came; Pt,
debias's prototypes, are those at the end of the domain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from holdfast.bench.metrics.seen import MIXED
from holdfast.util import files

KIND = "an analysis"


@dataclass(frozen=True)
class Distances:
    """Distances in one stretch of a domain. None: not defined, as with one class alone, or without
    Pt.

    classes: how many have an image here, and so a P*. Means are over these.
    source_classes: how many of them have source images too. The gap is over these alone, and
    similarity_source, which needs no P*, over all classes that have source images.
    images: how many were scored.
    """

    domain: str
    visit: int
    gap: float | None
    intra: float | None
    inter: float | None
    ratio: float | None
    similarity_source: float | None
    similarity_target: float | None
    classes: int
    source_classes: int
    images: int


COLUMNS = {"str": pl.String(), "int": pl.Int64(), "float | None": pl.Float64()}
SCHEMA = {column.name: COLUMNS[str(column.type)] for column in fields(Distances)}


class Geometry:
    """Means and squared deviations by class of the domain that is being seen; features are not
    kept. Takes the source's prototypes, and how many images stand behind each."""

    def __init__(self, source_prototypes: Tensor, counts: Tensor):
        with torch.inference_mode(False):
            # On the CPU: not every device has float64.
            self._source = source_prototypes.detach().cpu().double()
            self._known = counts.cpu() > 0
            classes, size = self._source.shape
            self._counts = torch.zeros(classes, dtype=torch.int64)
            self._means = torch.zeros(classes, size, dtype=torch.float64)
            # Of each class, Σ ‖f − mean‖².
            self._deviations = torch.zeros(classes, dtype=torch.float64)
        self._prototypes: Tensor | None = None
        self._at: tuple[str, int] | None = None
        self._finished: list[Distances] = []

    def update(
        self,
        features: Tensor,
        labels: Tensor,
        domains: str | Sequence[str],
        *,
        visit: int = 0,
        prototypes: Tensor | None = None,
    ) -> None:
        """Take in a batch: features before the adapter's step, prototypes after it.

        A label of −1 is not scored. `domains`: one for all images, or one for each; a batch of
        several is of the domain "mixed". With another domain or visit a new stretch begins.
        """
        names = {domains} if isinstance(domains, str) else set(domains)
        at = (names.pop() if len(names) == 1 else MIXED, visit)
        if at != self._at:
            self._close()
            self._at = at
        with torch.inference_mode(False), torch.no_grad():
            self._add(features.cpu().double(), labels.cpu().long())
            # A copy, since prototypes move in place, and these may turn out to be a domain's last.
            self._prototypes = None if prototypes is None else prototypes.detach().clone()

    def _add(self, features: Tensor, labels: Tensor) -> None:
        scored = labels >= 0
        labels, features = labels[scored], features[scored]
        classes, class_index, new = torch.unique(labels, return_inverse=True, return_counts=True)
        means = features.new_zeros(len(classes), features.shape[1]).index_add_(
            0, class_index, features
        )
        means /= new[:, None]
        within = (features - means[class_index]).square().sum(1)
        # Two groups joined as Chan et al. do: sums of squares would cancel where the mean is large.
        old = self._counts[classes]
        share = new / (old + new).double()
        apart = means - self._means[classes]
        self._means[classes] += apart * share[:, None]
        self._deviations.index_add_(0, labels, within)
        self._deviations[classes] += apart.square().sum(1) * old * share
        self._counts[classes] += new

    def _close(self) -> None:
        self._finished += self._open()
        for sums in (self._counts, self._means, self._deviations):
            sums.zero_()

    def _open(self) -> list[Distances]:
        """The stretch that goes on, as it is now; none before the first batch."""
        if self._at is None:
            return []
        shown = self._counts > 0
        both = shown & self._known
        means = self._means[shown]
        intra = self._deviations[shown] / self._counts[shown]
        # Σ over i of ‖a[c] − a[i]‖² = K ‖a[c]‖² + Σ ‖a[i]‖² for K means a around their own mean.
        around = (means - means.mean(0)).square().sum(1)
        inter = (len(means) * around + around.sum()) / (len(means) - 1)
        to_source = to_target = None
        if self._prototypes is not None:
            own = self._prototypes.cpu().double()
            to_source = _mean(_cosine(own, self._source)[self._known])
            to_target = _mean(_cosine(own, self._means)[shown])
        domain, visit = self._at
        return [
            Distances(
                domain,
                visit,
                gap=_mean((self._source - self._means)[both].square().sum(1)),
                intra=_mean(intra),
                inter=_mean(inter),
                ratio=_mean(intra / inter),
                similarity_source=to_source,
                similarity_target=to_target,
                classes=len(means),
                source_classes=int(both.sum()),
                images=int(self._counts.sum()),
            )
        ]

    @property
    def distances(self) -> list[Distances]:
        """In the order of the stream; the last is of the stretch that goes on, so far."""
        return self._finished + self._open()

    def rows(self) -> list[dict[str, Any]]:
        """The same by column, for a table: `polars.DataFrame(rows, schema=SCHEMA)`."""
        return [asdict(stretch) for stretch in self.distances]

    # To stop, and to go on exactly as if never stopped.

    def save(self, path: str | Path) -> None:
        header = {"at": self._at, "finished": [asdict(stretch) for stretch in self._finished]}
        own = {} if self._prototypes is None else {"prototypes": self._prototypes}
        sums = {"counts": self._counts, "means": self._means, "deviations": self._deviations}
        files.write(path, KIND, header, sums | own)

    def load(self, path: str | Path) -> None:
        header, state = files.read(path, KIND)
        self._at = None if header["at"] is None else (header["at"][0], header["at"][1])
        self._finished = [Distances(**stretch) for stretch in header["finished"]]
        self._counts, self._means = state["counts"], state["means"]
        self._deviations, self._prototypes = state["deviations"], state.get("prototypes")


def _mean(values: Tensor) -> float | None:
    """None where it is not defined: of no values, or of some that are not finite."""
    mean = float(values.mean())
    return mean if math.isfinite(mean) else None


def _cosine(first: Tensor, second: Tensor) -> Tensor:
    return torch.cosine_similarity(first, second, dim=1, eps=1e-30)
