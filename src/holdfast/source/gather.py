"""What passes over the source's images give: class prototypes, Fisher information, Gaussians."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from holdfast.engine.network import Network, at_least_float32
from holdfast.engine.norms import batch_norms
from holdfast.engine.step import Step
from holdfast.source.loaders import Order, check_labels

# Full covariances of more than this are refused: 1,000 classes of 2,048 features are 34 GB.
MOST_BYTES = 8e9

# Images with their labels, if there are any.
Batches = Iterable[tuple[Tensor, object]]


def gather_prototypes(network: Network, batches: Batches, statistics: str) -> dict[str, Tensor]:
    """Class means of the raw features by true label, the mean squared distance of an image's to
    that of its class, and what tells the loader's images."""
    classes, size = network.classes, network.feature_size
    # On the CPU: not every device has float64.
    sums = torch.zeros(classes, size, dtype=torch.float64)
    counts = torch.zeros(classes, dtype=torch.int64)
    squares = torch.zeros((), dtype=torch.float64)
    first, order, predicted = 0, Order(), list[Tensor]()
    for images, labels in batches:
        first = first or len(images)
        lone = len(images) == 1 and network.by_batch  # one image has no batch statistics
        step = Step(network, images)
        # Features first: that a layer is not the head is said before what is wrong with labels.
        features = sums.new_zeros(0) if lone else step.features.to(sums)
        labels = check_labels(labels, len(images), classes)
        order.update(images, labels)
        if lone:
            continue
        sums.index_add_(0, labels, features)
        squares += features.square().sum()
        counts += torch.bincount(labels, minlength=classes)
        predicted.append(torch.stack([labels, step.labels.cpu()]).int())
    means = sums / counts.clamp_min(1)[:, None]
    _check_finite(means)
    within = (squares - (sums * means).sum()) / counts.sum().clamp_min(1)
    return {
        f"prototypes/{statistics}": means.to(network.full_dtype),
        f"counts/{statistics}": counts,
        f"spread/{statistics}": within.clamp_min(0),
        f"predicted/{statistics}": torch.cat(predicted, 1),
        "loader/batch_size": torch.tensor(first),
        "loader/order": order.digest,
    }


def _check_finite(*tensors: Tensor) -> None:
    if not all(bool(tensor.isfinite().all()) for tensor in tensors):
        raise ValueError("The model's features of the source images are NaN or Inf.")


def gather_fisher(
    network: Network, batches: Batches, parameters: Mapping[str, nn.Parameter]
) -> dict[str, Tensor]:
    """Squared batch-mean gradients of the cross-entropy against the model's own labels, averaged
    over batches, in batch-statistics mode."""
    sums = {name: torch.zeros_like(at_least_float32(p)) for name, p in parameters.items()}
    count = 0
    for images, _ in batches:
        if len(images) == 1 and batch_norms(network.model):
            continue  # one image has no batch statistics
        _, logits = network(images)
        loss = nn.functional.cross_entropy(logits, logits.detach().argmax(1))
        gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        for total, gradient in zip(sums.values(), gradients, strict=True):
            if gradient is not None:
                total += gradient.detach().to(total.dtype) ** 2
        count += 1
    if not count:
        raise ValueError("The loader for Fisher information gave no batch of two or more images.")
    return {name: (total / count).cpu() for name, total in sums.items()}


@dataclass(frozen=True)
class Gaussians:
    """Class means (C, d), covariances (C, d, d) or their diagonals (C, d), how many images stand
    behind each; mean and full covariance over all. Covariances are divided by the count."""

    means: Tensor
    covariances: Tensor
    counts: Tensor
    mean: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], kind: str, network: Network) -> Gaussians:
        classes = (f"{kind}/mean", f"{kind}/covariance", f"{kind}/count")
        names = (*classes, "all/mean", "all/covariance")
        moved = (tensors[f"gaussians/{name}"].to(network.device) for name in names)
        return cls(*(t.to(network.full_dtype) if t.is_floating_point() else t for t in moved))


def gather_gaussians(network: Network, batches: Batches, *, diagonal: bool) -> dict[str, Tensor]:
    """One pass over the source with the model as it was trained; labels are not used."""
    classes, size = network.classes, network.feature_size
    shape = (classes, size) if diagonal else (classes, size, size)
    if 8 * torch.Size(shape).numel() > MOST_BYTES:
        raise ValueError(
            f"Full covariances of {classes} classes and {size} features take "
            f"{8e-9 * torch.Size(shape).numel():.0f} GB: choose variant=imagenet, whose class "
            "covariances are diagonal."
        )
    # Sums in float64 and on the CPU, since not every device has float64.
    sums, squares = (torch.zeros(s, dtype=torch.float64) for s in ((classes, size), shape))
    counts = torch.zeros(classes, dtype=torch.int64)
    products = torch.zeros(size, size, dtype=torch.float64)
    for images, _ in batches:
        step = Step(network, images)
        features, labels = step.features.double().cpu(), step.labels.cpu()
        sums.index_add_(0, labels, features)
        counts += torch.bincount(labels, minlength=classes)
        products += features.T @ features
        if diagonal:
            squares.index_add_(0, labels, features * features)
        else:
            for label in torch.unique(labels).tolist():
                members = features[labels == label]
                squares[label] += members.T @ members
    total = counts.sum()
    mean, means = sums.sum(0) / total, sums / counts.clamp_min(1)[:, None]
    # Class by class and in place: full covariances are large.
    for covariance, center, count in zip(squares, means, counts.clamp_min(1), strict=True):
        covariance.div_(count)
        covariance.sub_(center * center if diagonal else torch.outer(center, center))
    kind = "diagonal" if diagonal else "full"
    made = {
        f"{kind}/mean": means,
        f"{kind}/covariance": squares,
        "all/mean": mean,
        "all/covariance": products / total - torch.outer(mean, mean),
    }
    _check_finite(*made.values())
    rounded = {f"gaussians/{name}": tensor.to(network.full_dtype) for name, tensor in made.items()}
    return rounded | {f"gaussians/{kind}/count": counts}
