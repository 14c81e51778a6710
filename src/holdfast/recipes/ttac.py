"""TTAC: hold the Gaussians of the features, by class and over all, where they were at first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from holdfast import Learner, register, setting
from holdfast.parts import (
    ByBatch,
    ByRunning,
    Select,
    Step,
    Task,
    Term,
    TermResult,
)
from holdfast.source.gather import Gaussians

# In the CIFAR variant a class counts from so many images on.
ENOUGH = 16

# The share of the largest entry of the source's covariance that is added to every diagonal.
RIDGE = 1 / 30


def divergence(
    mean_s: Tensor,
    mean_t: Tensor,
    cov_s: Tensor,
    cov_t: Tensor,
    inverse_s: Tensor | None = None,
) -> Tensor:
    """KL(s ‖ t) + KL(t ‖ s) of Gaussians, (K,): means (K, d), covariances (K, d, d), or their
    diagonals (K, d). The log-determinants of both directions cancel."""
    apart = mean_t - mean_s
    if cov_s.ndim == 2:
        ratios = cov_s / cov_t + cov_t / cov_s - 2
        return 0.5 * (ratios + apart * apart * (1 / cov_s + 1 / cov_t)).sum(1)
    inverse_t = inverse(cov_t)
    inverse_s = inverse(cov_s) if inverse_s is None else inverse_s
    traces = (inverse_t * cov_s.mT).sum((1, 2)) + (inverse_s * cov_t.mT).sum((1, 2))
    pull = (inverse_s + inverse_t) @ apart[:, :, None]
    distance = (pull[:, :, 0] * apart).sum(1)
    total: Tensor = traces - 2 * apart.shape[1] + distance
    return 0.5 * total


def moved(
    mean: Tensor, cov: Tensor, count: Tensor, members: Tensor, size: Tensor, clip: int
) -> tuple[Tensor, Tensor]:
    """Running mean and covariance with new members: the gradient goes through these alone.

    members: (K, b, d), rows beyond `size` (K,) are ignored; count: (K,), these included.
    """
    # Not above 1/b, lest a covariance lose its positive sign where a batch exceeds the clip.
    share = 1 / torch.maximum(count.clamp_max(clip), size).to(mean.dtype)[:, None]
    row = torch.arange(members.shape[1], device=members.device)
    apart = torch.where((row < size[:, None])[:, :, None], members - mean[:, None], 0)
    change = share * apart.sum(1)
    b = size.to(mean.dtype)[:, None]
    if cov.ndim == 2:
        return mean + change, cov + share * ((apart * apart).sum(1) - b * cov) - change * change
    share, b = share[:, :, None], b[:, :, None]
    spread = apart.mT @ apart - b * cov
    return mean + change, cov + share * spread - change[:, :, None] * change[:, None, :]


class Inverse(torch.autograd.Function):
    """The inverse of symmetric positive matrices, which the ridge makes sure of. Torch's own
    inverse fails on batches of large ones with several threads, and the backward of its Cholesky
    factors is slow."""

    @staticmethod
    def forward(ctx: Any, cov: Tensor) -> Tensor:
        factors, failed = torch.linalg.cholesky_ex(cov)
        # What has no inverse turns NaN, and the batch is refused as for any other NaN.
        inverse = torch.where(failed[:, None, None] > 0, torch.nan, torch.cholesky_inverse(factors))
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        change: Tensor = inverse @ gradient @ inverse
        return -change


def inverse(cov: Tensor) -> Tensor:
    inverted: Tensor = Inverse.apply(cov)  # type: ignore[no-untyped-call]
    return inverted


def with_ridge(cov: Tensor, ridge: Tensor) -> Tensor:
    if cov.ndim == 2:
        return cov + ridge
    return cov + ridge * torch.eye(cov.shape[1], dtype=cov.dtype, device=cov.device)


class ClassAlignment(Term):
    """Divergence of the Gaussians of the classes that this batch is confident of."""

    def __init__(self, weight: float, source: Gaussians, method: Ttac):
        super().__init__("classes", weight)
        self.threshold = method.threshold
        self.clip = method.clip_class
        cifar = method.variant == "cifar"
        self.enough = ENOUGH if cifar else 1
        self.divisor = len(source.means) if cifar else 1
        start = 0 if cifar else self.clip
        self.means = nn.Buffer(source.means.clone())
        self.covariances = nn.Buffer(source.covariances.clone())
        self.counts = nn.Buffer(torch.full_like(source.counts, start))
        self.source_means = nn.Buffer(source.means, persistent=False)
        self.source_covariances = nn.Buffer(source.covariances, persistent=False)
        self.known = nn.Buffer(source.counts > 0, persistent=False)
        self.ridge = nn.Buffer(RIDGE * source.covariance.max(), persistent=False)

    def forward(self, step: Step) -> TermResult | None:
        confident = (step.detached_probabilities.amax(1) > self.threshold) & self.known[step.labels]
        chosen = confident.nonzero().squeeze(1)
        if not len(chosen):
            return None
        classes, class_index, size = torch.unique(
            step.labels[chosen], return_inverse=True, return_counts=True
        )
        members = _by_class(step.features[chosen], class_index, size)
        counts = self.counts[classes] + size
        means, covariances = moved(
            self.means[classes], self.covariances[classes], counts, members, size, self.clip
        )
        used = (counts >= self.enough).nonzero().squeeze(1)
        ours = classes[used]
        loss = divergence(
            self.source_means[ours],
            means[used],
            with_ridge(self.source_covariances[ours], self.ridge),
            with_ridge(covariances[used], self.ridge),
        )

        def commit() -> None:
            self.means[classes] = means.detach()
            self.covariances[classes] = covariances.detach()
            self.counts[classes] = counts

        total = loss.sum() / self.divisor if len(used) else None
        return TermResult(total, int(size[used].sum()), commit)


def _by_class(features: Tensor, class_index: Tensor, size: Tensor) -> Tensor:
    """Features by class, (classes, most members, d), filled up with zeros."""
    order = class_index.argsort(dim=0, stable=True)
    start = size.cumsum(0) - size
    column = torch.arange(len(class_index), device=class_index.device) - start[class_index[order]]
    members = features.new_zeros(len(size), int(size.max()), features.shape[1])
    return members.index_put((class_index[order], column), features[order])


class GlobalAlignment(Term):
    """Divergence of the one Gaussian of all features."""

    def __init__(self, weight: float, source: Gaussians, clip: int):
        super().__init__("global", weight)
        self.clip = clip
        self.mean = nn.Buffer(torch.zeros_like(source.mean)[None])
        self.covariance = nn.Buffer(torch.zeros_like(source.covariance)[None])
        self.count = nn.Buffer(torch.zeros_like(source.counts[:1]))
        self.ridge = RIDGE * source.covariance.max()
        ridged = with_ridge(source.covariance[None], self.ridge)
        self.source_mean = nn.Buffer(source.mean[None], persistent=False)
        self.source_covariance = nn.Buffer(ridged, persistent=False)
        self.source_inverse = nn.Buffer(inverse(ridged), persistent=False)

    def forward(self, step: Step) -> TermResult:
        members = step.features[None]
        size = torch.full_like(self.count, members.shape[1])
        count = self.count + size
        mean, covariance = moved(self.mean, self.covariance, count, members, size, self.clip)
        loss = divergence(
            self.source_mean,
            mean,
            self.source_covariance,
            with_ridge(covariance, self.ridge),
            self.source_inverse,
        )

        def commit() -> None:
            self.mean.copy_(mean.detach())
            self.covariance.copy_(covariance.detach())
            self.count.copy_(count)

        return TermResult(loss.squeeze(0), members.shape[1], commit)


@register("ttac")
@dataclass(frozen=True)
class Ttac(Learner):
    """Aligns running Gaussians of the features, by class and over all, with those of the source.

    L = λ · Σ over confident classes of KL(s ‖ t) + KL(t ‖ s) + λ · the same over all
    """

    paper: ClassVar[str] = (
        "Su et al. 2022, Revisiting realistic test-time training: sequential inference and "
        "adaptation by anchored clustering, arXiv 2206.02721, without its queue"
    )
    note: ClassVar[str] = (
        "As a plug-in it adds its two terms, with its own choice of confident images; what trains, "
        "the step and the prediction are the host's."
    )
    memory: ClassVar[str] = (
        "means and covariances of all classes, of the source and running (and as much again for "
        "reset()): for full covariances classes × features² numbers each, 0.42 GB in float32 for "
        "100 classes and 1,024 features"
    )
    plugin: ClassVar[bool] = True
    neutral: ClassVar = {"weight": 0.0}
    presets: ClassVar = {"cifar100-c": {"variant": "cifar", "lr": 1e-5, "weight": 0.5}}

    lr: float = setting(2e-4)
    select: Literal["norm", "body", "all"] = setting("body")
    variant: Literal["imagenet", "cifar"] = setting(
        "imagenet",
        "imagenet: diagonal class covariances, counts from clip_class, class terms summed; cifar: "
        f"full ones, counts from 0, classes from {ENOUGH} images on, divided by C",
    )
    clip: int = setting(1280, "most images that the Gaussian over all averages over", at_least=1)
    clip_class: int = setting(64, "most images that a class's averages over", at_least=1)
    threshold: float = setting(
        0.9, "confident: a largest probability above this", at_least=0, at_most=1
    )
    weight: float = setting(0.05, "λ of both terms; 0 leaves them out", at_least=0)
    predict: Literal["after", "before"] = setting(
        "after", "after the update by running statistics, or before it by the batch's"
    )

    def selection(self) -> Select:
        return Select(self.select, ByRunning() if self.predicts_after() else ByBatch())

    def terms(self, task: Task) -> list[Term]:
        if not self.has_effect():
            return []
        source = task.gaussians(diagonal=self.variant == "imagenet")
        return [
            ClassAlignment(self.weight, source, self),
            GlobalAlignment(self.weight, source, self.clip),
        ]

    def predicts_after(self) -> bool:
        return self.predict == "after"

    def predicting(self) -> str:
        if self.predicts_after():
            return "the adapted network's logits by running statistics, after the update"
        return self.predicts

    def needs(self) -> tuple[str, ...]:
        return ("gaussians",) if self.has_effect() else ()

    def always_drives(self) -> bool:
        return self.has_effect()

    def forwards(self) -> tuple[int, int]:
        count = 2 if self.predicts_after() else 1
        return count, count
