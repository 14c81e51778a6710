"""Statistics that follow the evidence: as far from the source's as a batch is beyond what batches
of source images do themselves."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from holdfast.engine.mixed import Gated
from holdfast.engine.moments import batch_moments, image_moments, together
from holdfast.engine.network import Network
from holdfast.engine.norms import BatchStatistics, Normalisation, Statistics, batch_norms
from holdfast.source.budgets import Budgets
from holdfast.source.point import Point
from holdfast.source.split import FEWEST, Split

# A layer believes a batch at least by this share of what the layers before it did, on average.
# Labels alone move late layers of the source model nearly as far as drift does, so that by limits
# that allow for sorted labels these have little evidence of their own; early ones tell drift well.
BORROWED = 0.75
# As a group: all images of a batch.
WHOLE = -1


@dataclass(frozen=True, eq=False)
class BySteady(Normalisation):
    """By the source's statistics, and by the current batch's as far as the batch says that it is
    not like the source.

    split: whether images of two kinds in one batch are normalised apart. spec: what tells these
    budgets from others.
    """

    budgets: Budgets = field(repr=False)
    split: bool = True
    spec: str = ""

    @staticmethod
    def check(network: Network) -> None:
        """Whether the rule can be followed there."""
        layers = batch_norms(network.model)
        if not layers:
            raise ValueError(
                f"steady decides how far batch norm follows a batch, but {network.name} has no "
                "batch norm layer: leave steady out."
            )
        for name, layer in layers.items():
            if layer.running_mean is None:
                raise ValueError(
                    f"steady starts from the source's running statistics, but the batch norm layer "
                    f"{name!r} keeps none (track_running_stats=False): leave steady out."
                )

    def start(self, layers: Mapping[str, _BatchNorm]) -> Statistics:
        return SteadyStatistics(layers, self.budgets, self.budgets.split if self.split else None)


@dataclass
class Part:
    """What a layer did with a batch, or with a group of its images: the share of these in all, how
    far it believed them, their drift over its limit, and how far from the source's mean, variance,
    scale and shift it went."""

    images: float
    alpha: Tensor
    drift: Tensor
    moved: tuple[Tensor, ...]


@dataclass
class Forward:
    """One forward through the layers of a network: which images are of one kind, how often each
    layer has run, how far those so far believed each group, and, if it is to be kept, what each
    did."""

    split: Split | None
    keeps: bool = False
    uses: dict[str, int] = field(default_factory=dict)
    groups: tuple[Tensor, ...] = ()
    believed: dict[int, tuple[Tensor, int]] = field(default_factory=dict)
    parts: dict[str, list[Part]] = field(default_factory=dict)

    def begin(self) -> None:
        self.uses, self.groups, self.believed, self.parts = {}, (), {}, {}

    def believe(self, group: int, drift: Tensor) -> Tensor:
        """How far a layer believes a group of this drift over its limit, by its own evidence and
        that of the layers before."""
        # Where the batch is the source's mean itself, 1 − 1/0 is below 0 as well.
        alpha = own = (1 - 1 / drift).clamp_min(0)
        total, layers = self.believed.get(group, (torch.zeros_like(own), 0))
        if layers:
            alpha = torch.maximum(own, total * (BORROWED / layers))
        self.believed[group] = total + alpha, layers + 1
        return alpha

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(group) for group in self.groups)


class Begin:
    """As a hook of a model: each call is another forward."""

    def __init__(self, forward: Forward):
        self.forward = forward

    def __call__(self, model: nn.Module, inputs: Any) -> None:
        self.forward.begin()


class SteadyNorm(nn.Module):
    """In place of a batch norm layer: μ = μ_s + α (m − μ_s), and variance, scale and shift alike,
    α = max(0, 1 − L(n)/D) for n images, or more if the layers before believe the batch.

    weight, bias: the layer's own, which may train. points: one for each time it runs in a forward.
    first: it runs before all others, and sees whether there are two kinds of image.
    """

    mean: Tensor
    var: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        name: str,
        layer: _BatchNorm,
        points: Sequence[Point],
        forward: Forward,
        *,
        first: bool,
    ):
        super().__init__()
        self.name, self.look, self.first, self.eps = name, forward, first, layer.eps
        self.points = nn.ModuleList(points)
        self.weight, self.bias = layer.weight, layer.bias
        assert layer.running_mean is not None and layer.running_var is not None
        wide = torch.promote_types(layer.running_mean.dtype, torch.float32)
        for key, tensor in (("mean", layer.running_mean), ("var", layer.running_var)):
            self.register_buffer(key, tensor.detach().to(wide, copy=True))
        ones, zeros = torch.ones_like(self.mean), torch.zeros_like(self.mean)
        for key, own, without in (("scale", layer.weight, ones), ("shift", layer.bias, zeros)):
            kept = without if own is None else own.detach().to(wide, copy=True)
            self.register_buffer(key, kept)
        self.eval()

    def begin(self, look: Forward) -> tuple[int, Point]:
        """It runs in a forward: how often it has before, and what it goes by this time."""
        use = look.uses.get(self.name, 0)
        look.uses[self.name] = use + 1
        point = self.points[min(use, len(self.points) - 1)]
        assert isinstance(point, Point)
        return use, point

    def forward(self, input: Tensor) -> Tensor:
        x = input
        use, point = self.begin(self.look)
        moments = None
        if self.first and use == 0 and self.look.split is not None and len(x) >= FEWEST:
            of_images = image_moments(x)
            self.look.groups = self.look.split.groups(point, *of_images)
            moments = together(*of_images)
        groups = self.look.groups
        if not groups or len(x) != sum(self.look.sizes):
            return self._normalise(x, point, moments or batch_moments(x), WHOLE, 1.0)
        indices = [group.to(x.device) for group in groups]
        parts = [
            self._normalise(part, point, batch_moments(part), group, len(part) / len(x))
            for group, part in enumerate(x[index] for index in indices)
        ]
        return torch.cat(parts)[torch.cat(indices).argsort()]

    def _normalise(
        self, x: Tensor, point: Point, moments: tuple[Tensor, Tensor], group: int, share: float
    ) -> Tensor:
        mean, var = moments
        limit = point.unexplained_limit(max(1, len(x) // point.rows))
        ratio = point.beyond(mean, var, limit)
        alpha = self.look.believe(group, ratio)
        moved = self.moved(alpha, mean, var, self.weight, self.bias)
        if self.look.keeps:
            kept = tuple(tensor.detach() for tensor in moved)
            self.look.parts.setdefault(self.name, []).append(Part(share, alpha, ratio, kept))
        scale, shift = self.affine(moved)
        center, spread = self.mean + moved[0], self.var + moved[1]
        out: Tensor = Gated.apply(x, scale, shift, center, spread, mean, alpha, self.eps)  # type: ignore[no-untyped-call]
        return out

    def moved(
        self, alpha: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None
    ) -> list[Tensor]:
        """How far from the source's mean, variance, scale and shift it goes, if it believes a
        batch of these so far."""
        found = [alpha * (mean - self.mean), alpha * (var - self.var)]
        if weight is not None and bias is not None:
            found += [alpha * (weight - self.scale), alpha * (bias - self.shift)]
        return found

    def affine(self, moved: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Scale and shift, moved so far."""
        if self.weight is None:
            return self.scale, self.shift
        return self.scale + moved[2], self.shift + moved[3]


class SteadyStatistics(Statistics):
    """Layers under the rule, with an average on the side of how far from the source they were.

    A batch of n images counts n / (n + REACH), as in `BatchStatistics`; where no layer ever moved,
    the average is zero, and what is exported the source model itself.
    """

    by_batch = False

    def __init__(self, layers: Mapping[str, _BatchNorm], budgets: Budgets, split: Split | None):
        super().__init__(layers)
        self.look = Forward(split)
        self.norms: dict[str, SteadyNorm] = {}
        # A layer without a budget never ran on the source, and stays as it is.
        for name, points in budgets.layers.items():
            first = not self.norms
            self.norms[name] = SteadyNorm(name, layers[name], points, self.look, first=first)
            layers[name].forward = self.norms[name].forward  # type: ignore[method-assign]
        sources = [source for norm in self.norms.values() for source in self.sources(norm)]
        self.sizes = [len(source) for source in sources]
        self.average = sources[0].new_zeros(sum(self.sizes))
        self.weight = torch.zeros((), dtype=torch.float64)
        self._told: tuple[Tensor, tuple[int, ...]] | None = None
        self._track({}, average=self.average, weight=self.weight)

    @staticmethod
    def sources(norm: SteadyNorm) -> list[Tensor]:
        """What a layer moves from."""
        return [norm.mean, norm.var, *([] if norm.weight is None else [norm.scale, norm.shift])]

    def leave_graphs(self) -> None:
        for name, norm in self.norms.items():
            self.layers[name].forward = torch.compiler.disable(norm.forward)  # type: ignore

    def snapshot(self) -> None:
        super().snapshot()
        self._told = None

    def begin(self) -> None:
        self.look.begin()

    @contextmanager
    def recording(self, images: int) -> Iterator[None]:
        self.look.keeps = True
        try:
            yield
            self._take_in(images)
        finally:
            self.look.keeps = False
            self.look.parts = {}

    @torch.no_grad()
    def _take_in(self, images: int) -> None:
        moved: list[Tensor] = []
        told: list[Tensor] = []
        for name, norm in self.norms.items():
            parts = self.look.parts.get(name, [])
            total = sum(part.images for part in parts)
            if not parts:  # it did not run: it stayed where it was
                moved += [torch.zeros_like(source) for source in self.sources(norm)]
                told.append(self.average.new_zeros(2))
                continue
            weights = [part.images / total for part in parts]
            for kind in zip(*(part.moved for part in parts), strict=True):
                moved.append(_weighted(weights, kind))
            pairs = [torch.stack([part.alpha, part.drift]) for part in parts]
            told.append(_weighted(weights, pairs))
        self.take_in(torch.cat(moved), torch.stack(told), self.look.sizes, images)

    def take_in(self, moved: Tensor, told: Tensor, kinds: tuple[int, ...], images: int) -> None:
        """How far from the source layers went with so many images, all behind each other; how far
        each believed them, and their drift, (layers, 2); and how many there are of two kinds."""
        share = BatchStatistics.share(images)
        self.average.lerp_(moved, share)
        self.weight.lerp_(torch.ones_like(self.weight), share)
        self._told = told, kinds

    def told(self) -> Mapping[str, Any]:
        if self._told is None:
            return {}
        found, sizes = self._told
        alpha, drift = found.T.tolist()
        names = self.norms
        return {
            "alpha": dict(zip(names, alpha, strict=True)),
            "drift": dict(zip(names, drift, strict=True)),
            "split": sizes,
        }

    def write_into(self, model: nn.Module, statistics: Literal["stream", "batch"]) -> None:
        layers = batch_norms(model)
        for name in self.norms:
            del layers[name].forward
        if statistics == "batch":
            # All at once, so that they still share what they know of a forward.
            own = copy.deepcopy(self.norms)
            for parent in list(model.modules()):
                for key, child in parent._modules.items():
                    norm = next((own[name] for name in own if layers[name] is child), None)
                    if norm is not None:
                        setattr(parent, key, norm.requires_grad_(False))
            look = next(iter(own.values())).look
            look.begin()
            model.register_forward_pre_hook(Begin(look))
            return
        if not self.weight:
            return
        pieces = iter(torch.split(self.average / self.weight.to(self.average), self.sizes))
        for name, norm in self.norms.items():
            layer = layers[name]
            into = [layer.running_mean, layer.running_var, layer.weight, layer.bias]
            for tensor, source in zip(into, self.sources(norm), strict=False):
                assert tensor is not None
                tensor.copy_(source + next(pieces))


def _weighted(weights: Sequence[float], tensors: Sequence[Tensor]) -> Tensor:
    if len(tensors) == 1:
        return tensors[0]
    return torch.stack([w * t for w, t in zip(weights, tensors, strict=True)]).sum(0)
