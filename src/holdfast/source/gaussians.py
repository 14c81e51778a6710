"""Gaussians of the source's features: by class as the model predicts it, and over all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from holdfast.engine.network import Network
from holdfast.engine.step import Step

# Full covariances of more than this are refused: 1,000 classes of 2,048 features are 34 GB.
MOST_BYTES = 8e9


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
        dtype = torch.promote_types(network.dtype, torch.float32)

        def get(name: str) -> Tensor:
            found = tensors[f"gaussians/{name}"].to(network.device)
            return found.to(dtype) if found.is_floating_point() else found

        return cls(
            get(f"{kind}/mean"),
            get(f"{kind}/covariance"),
            get(f"{kind}/count"),
            get("all/mean"),
            get("all/covariance"),
        )


def gather_gaussians(
    network: Network, batches: Iterable[tuple[Tensor, object]], *, diagonal: bool
) -> dict[str, Tensor]:
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
    if not all(bool(tensor.isfinite().all()) for tensor in made.values()):
        raise ValueError("The model's features of the source images are NaN or Inf.")
    dtype = torch.promote_types(network.dtype, torch.float32)
    rounded = {f"gaussians/{name}": tensor.to(dtype) for name, tensor in made.items()}
    return rounded | {f"gaussians/{kind}/count": counts}
