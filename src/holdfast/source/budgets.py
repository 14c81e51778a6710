"""How far batches of source images lie from the source, by chance and by their labels alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from holdfast.engine.moments import image_moments
from holdfast.engine.network import Network
from holdfast.engine.norms import batch_norms
from holdfast.engine.step import Step
from holdfast.source.loaders import check_labels
from holdfast.source.point import EPSILON, LEAST, Point, label_directions
from holdfast.source.split import FEWEST, Split, describe, two_means
from holdfast.util.samplers import Indices, rotta, sort

# Of so many images are the batches that are drawn, and so often.
SIZES = tuple(2**power for power in range(10))
DRAWS = 200
# From each order of the images by labels, so many runs.
RUNS = 10
# Sorted batches come in rows: only so much of the share of others may lie beyond their limit.
RARER = 0.2
# Where a source keeps what is made here. 4: since layers tell drift from labels by directions.
KEPT = "budgets/4/"


def budgets_key(samples: int = 3000, skew: float = 0.1, quantile: float = 0.95) -> str:
    """Below which a source keeps budgets that were made so."""
    return f"{KEPT}{samples}/{skew:g}/{quantile:g}/"


@dataclass(frozen=True, eq=False)
class Budgets:
    """By batch norm layer, in the order in which they run: a point for each time it runs in a
    forward. One for the features; and where images of two kinds are told apart, unless the network
    has no batch norm layer that could."""

    layers: Mapping[str, tuple[Point, ...]]
    features: Point
    split: Split | None

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], network: Network) -> Budgets:
        """As `make_budgets` wrote them."""
        layers: dict[str, tuple[Point, ...]] = {}
        curves = [tensors[name].tolist() for name in ("limits", "unexplained_limits", "rows")]

        def point(number: int, moments: Tensor) -> Point:
            by_labels = tensors[f"by_labels/{number:04}"]
            made = Point(moments, by_labels, *(curve[number] for curve in curves))
            return made.to(network.device, network.full_dtype)

        found = sorted(name for name in tensors if name.startswith("layer/"))
        for number, name in enumerate(found):
            layer = name.split("/", 2)[2]
            layers[layer] = (*layers.get(layer, ()), point(number, tensors[name]))
        split = None
        if "split/limits" in tensors:
            center, deviation = tensors["split/place"]
            weight = tensors[found[0]][2]
            split = Split(center, deviation, weight, tensors["split/limits"].tolist())
        return cls(layers, point(len(found), tensors["features"]), split)


@dataclass
class Moments:
    """Mean and variance of each image's channels at one point, (images, channels)."""

    layer: str | None
    weight: Tensor
    rows: int
    mean: Tensor
    var: Tensor


# A layer, None for the features, and how often it has run in this forward.
Place = tuple[str | None, int]


class Watcher:
    """Sees what goes into each batch norm layer."""

    def __init__(self, layers: Mapping[str, nn.Module]):
        self.layers = layers
        self.found: dict[Place, list[tuple[Tensor, Tensor]]] = {}
        self.rows: dict[Place, int] = {}
        self.hooks = ExitStack()
        for name, layer in layers.items():
            self.hooks.enter_context(layer.register_forward_pre_hook(self._watching(name)))

    def begin(self, images: int) -> None:
        self.images = images
        self.uses = dict.fromkeys(self.layers, 0)

    def _watching(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def see(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            place = name, self.uses[name]
            self.uses[name] += 1
            self.rows[place], x = by_image(inputs[0], self.images, name)
            self.found.setdefault(place, []).append(_on_cpu(x))

        return see


def gather_moments(
    network: Network, batches: Iterable[tuple[Tensor, object]]
) -> tuple[Iterator[Moments], Tensor]:
    """The moments at each point, in the order in which layers run and the features last, and the
    images' labels."""
    watcher = Watcher(batch_norms(network.model))
    labels: list[Tensor] = []
    features: list[tuple[Tensor, Tensor]] = []
    with watcher.hooks:
        for images, given in batches:
            labels.append(check_labels(given, len(images), network.classes))
            watcher.begin(len(images))
            features.append(_on_cpu(Step(network, images).features))
    watcher.found[None, 0] = features

    def points() -> Iterator[Moments]:
        # One at a time: of a large network they are large together.
        for layer, use in list(watcher.found):
            parts = watcher.found.pop((layer, use))
            mean, var = (torch.cat(each) for each in zip(*parts, strict=True))
            weight = _weight(None if layer is None else watcher.layers[layer], mean.shape[1])
            yield Moments(layer, weight, watcher.rows.get((layer, use), 1), mean, var)

    return points(), torch.cat(labels)


def _on_cpu(x: Tensor) -> tuple[Tensor, Tensor]:
    mean, var = image_moments(x)
    return mean.cpu(), var.cpu()


def by_image(x: Tensor, images: int, name: str) -> tuple[int, Tensor]:
    """A layer's input with one row an image, and how many rows each had."""
    rows, left = divmod(len(x), images)
    if left or not rows:
        raise ValueError(
            f"The batch norm layer {name!r} sees {len(x)} rows for {images} images, so that it "
            "cannot be said which image is behind which: its statistics cannot be followed."
        )
    if rows > 1:  # such as patches, which follow each other in axis 0
        x = x.reshape(images, rows, *x.shape[1:]).movedim(1, -1)
    return rows, x


def _weight(layer: nn.Module | None, channels: int) -> Tensor:
    """How much each channel counts: by the square of its scale, if it has one."""
    scale = getattr(layer, "weight", None)
    square = torch.ones(channels).double() if scale is None else scale.detach().cpu().double() ** 2
    return square / square.sum().clamp_min(LEAST)


def make_budgets(
    network: Network,
    batches: Iterable[tuple[Tensor, object]],
    *,
    skew: float,
    quantile: float,
) -> dict[str, Tensor]:
    """One pass over the source with the model as it was trained. Batches are drawn from its images
    at random, as runs of an order in which labels come in clusters (Dirichlet, of `skew`), and as
    runs of sorted labels."""
    points, labels = gather_moments(network, batches)
    drawn = Drawn(labels, skew)
    made: dict[str, Tensor] = {}
    limits, rows = list[Tensor](), list[int]()
    for number, moments in enumerate(points):
        if not all(bool(each.isfinite().all()) for each in (moments.mean, moments.var)):
            raise ValueError("What the model's layers make of the source images is NaN or Inf.")
        mean, var = moments.mean.double().mean(0), moments.var.double().mean(0)
        var = var + moments.mean.double().var(0, correction=0)
        table = torch.stack([mean, var, moments.weight])
        name = f"layer/{number:04}/{moments.layer}" if moments.layer is not None else "features"
        made[name] = table
        point = drawn.point(table, moments)
        made[f"by_labels/{number:04}"] = point.by_labels
        limits.append(drawn.limits(point, moments, quantile))
        rows.append(moments.rows)
        if number == 0 and moments.layer is not None and moments.rows == 1:
            made |= drawn.split(moments, quantile)
    both = torch.stack(limits, 1)
    made |= {"limits": both[0], "unexplained_limits": both[1], "rows": torch.tensor(rows)}
    return made


class Drawn:
    """Batches drawn from the source's images: the same for every point."""

    def __init__(self, labels: Tensor, skew: float):
        images, rng = len(labels), np.random.default_rng(0)
        orders = [rotta(rng, labels.numpy(), gamma=skew) for _ in range(DRAWS // RUNS)]
        random = {size: rng.integers(images, size=(DRAWS, size)) for size in SIZES}
        skewed = _runs(rng, orders)
        in_order = _runs(rng, [sort(rng, labels.numpy()) for _ in orders])
        self.kinds = random, skewed, in_order
        # One image has no variance where it is a single number: classes of one count if all are.
        fewest = min(2, int(labels.bincount().max()))
        self.classes = nn.functional.one_hot(labels).T[labels.bincount() >= fewest].float()
        self.counts = {}
        for size in SIZES:
            every = np.concatenate([draws[size] for draws in self.kinds])
            counts = torch.zeros(len(every), images)
            ones = torch.ones(every.shape)
            self.counts[size] = counts.scatter_add_(1, torch.from_numpy(every), ones)

    def point(self, table: Tensor, moments: Moments) -> Point:
        """Given mean, variance and weight of its channels."""
        point = Point(table)
        by_class = point.place(*_pooled(self.classes, moments, point))
        return Point(table, label_directions(by_class))

    def limits(self, point: Point, moments: Moments, quantile: float) -> Tensor:
        """Logarithms of the largest quantile for each size: of the drift of random and skewed
        batches, and of what labels do not explain of that of all three kinds, (2, sizes)."""
        found = []
        for counts in self.counts.values():
            pooled = _pooled(counts, moments, point)
            usual = point.drift(*pooled)[: 2 * DRAWS].reshape(2, DRAWS)
            random, skewed, in_order = point.unexplained(*pooled).reshape(3, DRAWS)
            largest = in_order.quantile(1 - RARER * (1 - quantile))
            for kind in random, skewed:
                largest = largest.maximum(kind.quantile(quantile))
            found += [usual.quantile(quantile, 1).amax(), largest]
        return torch.stack(found).reshape(-1, 2).T.clamp_min(LEAST).log()

    def split(self, moments: Moments, quantile: float) -> dict[str, Tensor]:
        """Where images lie, and how far apart two means of batches are: the largest quantile of the
        three kinds."""
        mean, var = moments.mean.double(), moments.var.double()
        deviation, center = torch.std_mean(describe(mean, var), 0, correction=0)
        split = Split(center, deviation.clamp_min(EPSILON), moments.weight)
        place, found = split.place(mean, var), []
        for size in SIZES:
            if size >= FEWEST:
                ratios = torch.stack([two_means(place[kind[size]])[1] for kind in self.kinds])
                ratios = ratios.nan_to_num(0, posinf=1 / LEAST)
                found.append(ratios.quantile(quantile, 1).amax())
        limits = torch.stack(found).clamp_min(LEAST).log()
        return {"split/place": torch.stack([center, split.deviation]), "split/limits": limits}


def _pooled(counts: Tensor, moments: Moments, point: Point) -> tuple[Tensor, Tensor]:
    """Mean and variance, (groups, channels), of groups of images: how often each is in which,
    (groups, images)."""
    # From the source's mean on, so that squares do not swallow what is to be found.
    moved = moments.mean - point.mean.to(moments.mean)
    both = torch.cat([moved, moments.var + moved**2], 1)
    images = counts.sum(1, keepdim=True, dtype=torch.float64)
    shift, square = ((counts.to(both) @ both).double() / images).chunk(2, 1)
    return point.mean + shift, (square - shift**2).clamp_min(0)


def _runs(rng: np.random.Generator, orders: Sequence[Indices]) -> dict[int, Indices]:
    """Images that follow each other in these orders, (DRAWS, size) for each size."""
    images, made = len(orders[0]), {}
    for size in SIZES:
        starts = rng.integers(images, size=(len(orders), RUNS, 1))
        runs = (starts + np.arange(size)) % images
        every = [order[run] for order, run in zip(orders, runs, strict=True)]
        made[size] = np.stack(every).reshape(-1, size)
    return made
