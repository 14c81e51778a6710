"""LAME: predictions of a batch that agree with those of images with similar features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from holdfast import Method, register, setting
from holdfast.parts import Predicted, Refine, Step, Task, features_and_logits

ROUNDS = 100
SETTLED = 1e-8


class Neighbourly(Refine):
    """LAME on whatever leaves the host, by the features of the network that predicts."""

    def __init__(self, method: Lame):
        super().__init__()
        self.method = method

    def forward(self, logits: Tensor, step: Step) -> Predicted:
        return Predicted(self.method.refined(step.features.detach(), logits))

    def module(self, predictor: nn.Module, head: str, exact: bool) -> nn.Module:
        """Of an image alone it changes no class: what serves single images is the predictor."""
        return Refined(predictor, head, self.method) if exact else predictor

    def extra_repr(self) -> str:
        return str(self.method)


class Refined(nn.Module):
    """A plain module whose predictions are refined within each batch that it is given."""

    def __init__(self, predictor: nn.Module, head: str, method: Lame):
        super().__init__()
        self.predictor = predictor
        self.head = head
        self.method = method

    def forward(self, images: Tensor) -> Tensor:
        return self.method.refined(*features_and_logits(self.predictor, self.head, images))


@register("lame")
@dataclass(frozen=True)
class Lame(Method):
    """Changes a batch's predictions until images with similar features agree; nothing is learnt.

    Y ← softmax(ln p + W Y), from Y = p until E(Y) stays; W: affinity of features; ln Y leaves
    """

    paper: ClassVar[str] = (
        "Boudiaf et al. 2022, Parameter-free online test-time adaptation, arXiv 2201.05718"
    )
    note: ClassVar[str] = (
        "It takes for granted that images of a batch with similar features share their class. "
        "Where a stream is sorted by label it wins (11.3 % error against 32.7 % of the source "
        "model, CIFAR-10-C, correlated labels); on shuffled streams of many classes it ruins "
        "accuracy (98.5 % on CIFAR-100-C, 93.5 % on ImageNet-C). Published on the source model as "
        "it is: lame alone is frozen+lame. On a host it refines the logits that leave, by the "
        "features of the network that predicts (rmt, where two do: the student's), and what is "
        "learnt does not see it. An image alone has only itself to agree with: it gets surer of "
        "the class it has; with window=W it meets the last W images. So frozen(), which serves "
        "single images, leaves LAME out; frozen(statistics='batch') refines each batch. Rounding "
        "decides when E stays, and ln Y by up to 1e-4."
    )
    predicts: ClassVar[str] = "ln Y, log-probabilities of the source model's refined predictions"
    memory: ClassVar[str] = "one number for each pair of images in a batch"
    plugin: ClassVar[bool] = True
    # Rounding decides when E stays, and that of a forward with other streams' images is another.
    groups: ClassVar[bool] = False
    standalone: ClassVar[bool] = False
    needs_steps: ClassVar[bool] = False
    neutral: ClassVar = None

    affinity: Literal["rbf", "knn", "linear"] = setting(
        "rbf", "W: Gaussian of the distance, 1 for the nearest others and 0 else, or the cosine"
    )
    neighbours: int = setting(
        5,
        "of knn; and rbf is as wide as the mean distance to this one, itself being the first",
        at_least=1,
    )
    symmetric: bool = setting(False, "take (W + Wᵀ)/2")

    def objection(self, host: Method | None) -> str | None:
        if host is not None and "prior" in host.holds():
            return (
                f"{host.name} corrects its logits by the classes of the batch, which lame would "
                f"take for evidence: write {host.name}(correct=false)+lame."
            )
        if host is not None and host.episode_steps():
            return (
                f"{host.name} answers each image by itself, so that lame has no batch to go by: "
                "write bn+lame, or lame."
            )
        return super().objection(host)

    def objection_after(self, before: tuple[Method, ...]) -> str | None:
        changed = [plugin.name for plugin in before if not plugin.keeps_probabilities()]
        if not changed:
            return None
        return (
            f"After {changed[0]}, logits are no longer those of probabilities that lame could "
            f"refine: write one of the two, as in tent+{changed[0]} or tent+lame."
        )

    def refine(self, task: Task) -> list[Refine]:
        return [Neighbourly(self)]

    def refined(self, features: Tensor, logits: Tensor) -> Tensor:
        """ln Y of a batch."""
        weight, own = self.weights(features), (logits.softmax(1) + 1e-10).log()
        y, before = own.softmax(1), own[:, 0]
        for number in range(ROUNDS):
            exponent = own + weight @ y
            y = exponent.softmax(1)
            # E = Σ (−ln p − W Y_before + ln Y)·Y, and ln Y is the exponent less its logsumexp: each
            # image's share of −E. Their differences are exact where those of sums round away.
            share = exponent.logsumexp(1)
            if number > 1 and (share - before).sum().abs() <= SETTLED * before.sum().abs():
                break
            before = share
        return exponent.log_softmax(1)

    def weights(self, features: Tensor) -> Tensor:
        """W, the affinity of each image (a row) to each (a column)."""
        unit = nn.functional.normalize(features, dim=1)
        if self.affinity == "linear":
            found = unit @ unit.T
        else:
            # Around their mean: lengths are then of the size of distances, which rounding spares.
            apart = unit - unit.mean(0)
            product = apart @ apart.T
            length = product.diagonal()
            squared = (length[:, None] + length - 2 * product).clamp_min(0)
            found = self._gaussian(squared) if self.affinity == "rbf" else self._nearest(squared)
        return (found + found.T) / 2 if self.symmetric else found

    def _gaussian(self, squared: Tensor) -> Tensor:
        distances = squared.topk(min(self.neighbours, len(squared)), largest=False).values
        width = distances[:, -1].sqrt().mean()
        # Images that are all alike have no distance but rounding.
        return (-0.5 * squared / (width * width).clamp_min(torch.finfo(width.dtype).eps)).exp()

    def _nearest(self, squared: Tensor) -> Tensor:
        others = squared.clone().fill_diagonal_(torch.inf)
        places = others.topk(min(self.neighbours, len(squared) - 1), largest=False).indices
        return torch.zeros_like(squared).scatter_(1, places, 1.0)
