"""A bank of supports: for each class, the features of which the model was most certain."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from holdfast.engine.network import Network


class Joined(NamedTuple):
    """The bank as it will be with a batch in it, as far as that differs.

    classes: those that the batch was predicted as, (U,).
    stays: which of their supports stay, (U, keep).
    sums: the new sums of their supports, (U, features).
    enters: which images of the batch enter, and `slots` where, as pairs of class and place.
    features, logits: the batch's.
    """

    classes: Tensor
    stays: Tensor
    sums: Tensor
    enters: Tensor
    slots: tuple[Tensor, Tensor]
    features: Tensor
    logits: Tensor


class Supports(nn.Module):
    """For each class up to `keep` supports, those of lowest entropy, in tensors of their full size.

    A support is the direction of a feature, with its entropy and its softmax at the time it came
    in. The head's rows are the first. Of two with the same entropy the earlier stays.
    """

    directions: Tensor
    entropies: Tensor
    ranks: Tensor
    sums: Tensor
    came: Tensor
    scores: Tensor
    lengths: Tensor

    def __init__(self, network: Network, keep: int, *, scored: bool = False):
        super().__init__()
        rows = network.rows
        classes, size = rows.shape
        self.keep = keep
        self.scored = scored
        shape = (classes, keep)
        self.register_buffer("directions", rows.new_zeros(*shape, size))
        self.register_buffer("entropies", rows.new_full(shape, torch.inf))
        # When a support came: the order among those of one entropy.
        self.register_buffer("ranks", torch.zeros(shape, dtype=torch.int64, device=rows.device))
        self.register_buffer("sums", rows.new_zeros(classes, size))
        self.register_buffer("came", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scores", rows.new_zeros(*shape, classes if scored else 0))
        # Sums of the directions' absolute values, for those who normalise by these.
        self.register_buffer("lengths", rows.new_zeros(*shape) if scored else rows.new_zeros(0))
        with torch.no_grad():
            bias = getattr(network.head, "bias", None)
            logits = rows @ rows.T
            logits = logits if bias is None else logits + bias.detach()
            self.take(self.join(rows, logits))

    def join(self, features: Tensor, logits: Tensor, newest: int | None = None) -> Joined:
        """Where the images of a batch would enter, or its newest alone. Changes nothing."""
        if newest is not None:
            features, logits = features[-newest:], logits[-newest:]
        log_p = logits.log_softmax(1)
        entropies = -(log_p.exp() * log_p).sum(1)
        classes, class_index = torch.unique(logits.argmax(1), return_inverse=True)
        count, known = len(features), self.entropies[classes]
        # One row a class: its supports, then the batch, with Inf where there is none.
        fresh = known.new_full((len(classes), count), torch.inf)
        images = torch.arange(count, device=class_index.device)
        fresh[class_index, images] = entropies
        ranks = torch.cat([self.ranks[classes], (int(self.came) + images).expand_as(fresh)], 1)
        joined = torch.cat([known, fresh], 1)
        order = ranks.argsort(1)
        order = order.gather(1, joined.gather(1, order).argsort(dim=1, stable=True))[:, : self.keep]
        chosen = torch.zeros_like(joined, dtype=torch.bool).scatter_(1, order, True)
        chosen &= joined < torch.inf
        stays, comes = chosen[:, : self.keep], chosen[:, self.keep :]
        row, enters = comes.nonzero(as_tuple=True)
        # Of each class, the n-th to enter takes the n-th free place.
        free = (~stays).sort(dim=1, descending=True, stable=True).indices
        slots = (classes[row], free[row, comes.cumsum(1)[row, enters] - 1])
        # Summed class by class, so that no (U, keep, features) tensor has to be copied.
        weights = stays.to(features.dtype)
        sums = torch.stack(
            [weights[i] @ self.directions[label] for i, label in enumerate(classes.tolist())]
        )
        sums.index_add_(0, row, nn.functional.normalize(features, dim=1)[enters])
        return Joined(classes, stays, sums, enters, slots, features, logits)

    def take(self, joined: Joined) -> None:
        """Let the batch enter."""
        classes, stays, sums, enters, slots, features, logits = joined
        self.entropies[classes] = self.entropies[classes].masked_fill(~stays, torch.inf)
        log_p = logits[enters].log_softmax(1)
        directions = nn.functional.normalize(features[enters], dim=1)
        self.directions[slots] = directions
        self.entropies[slots] = -(log_p.exp() * log_p).sum(1)
        self.ranks[slots] = self.came + enters
        self.sums[classes] = sums
        if self.scored:
            self.scores[slots] = log_p.exp()
            self.lengths[slots] = directions.abs().sum(1)
        self.came += len(features)

    def weakest(self) -> tuple[Tensor, Tensor]:
        """For each class, the entropy that a new support has to be below, and the direction that
        it would replace; Inf and zeros where there is room."""
        full = self.entropies.isfinite().all(1)
        limits = self.entropies.amax(1)
        last = self.ranks.masked_fill(self.entropies < limits[:, None], -1).argmax(1)
        replaced = self.directions[torch.arange(len(last), device=last.device), last]
        return limits, torch.where(full[:, None], replaced, 0)

    def class_sums(self, joined: Joined) -> Tensor:
        """The sum of each class's supports, with the batch in."""
        sums = self.sums.clone()
        sums[joined.classes] = joined.sums
        return sums
