"""A watch for collapse."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Watch(nn.Module):
    """Sees predictions fall into a few classes.

    It follows the frequency of each predicted class over about ten images a class. The spread is
    (e^H − 1)/(C − 1), H being the entropy of these frequencies: 1 when all classes are predicted
    alike, 0 when one class is all that is left. Below 0.05 the model has collapsed.
    """

    COLLAPSED = 0.05
    HEALTHY = 0.2

    frequency: Tensor
    images: Tensor
    alarmed: Tensor
    settled_at: Tensor

    def __init__(self, classes: int):
        super().__init__()
        self.horizon = max(500, 10 * classes)
        self.register_buffer("frequency", torch.zeros(classes, dtype=torch.float64))
        self.register_buffer("images", torch.zeros((), dtype=torch.int64))
        self.register_buffer("alarmed", torch.zeros((), dtype=torch.bool))
        self.register_buffer("settled_at", torch.zeros((), dtype=torch.int64))

    def forward(self, labels: Tensor) -> bool:
        """Take in a batch of predictions; True at the batch at which they have collapsed."""
        classes = len(self.frequency)
        fresh = torch.bincount(labels.cpu(), minlength=classes).to(self.frequency) / len(labels)
        keep = (1 - 1 / self.horizon) ** len(labels)
        self.frequency.mul_(keep).add_(fresh, alpha=1 - keep)
        self.images += len(labels)
        collapsed = int(self.images) >= self.horizon and self.spread() < self.COLLAPSED
        news = collapsed and not bool(self.alarmed)
        self.alarmed.fill_(collapsed)
        return news

    def fits(self, logits: Tensor) -> bool:
        """A layer taken for the head that is not has another number of classes."""
        return logits.shape[1] == len(self.frequency)

    def settled(self) -> bool:
        """True now and then, while predictions are spread: what was put aside at the last time
        is then healthy, since a collapse at that time would show by now."""
        if int(self.images - self.settled_at) < 2 * self.horizon or self.spread() < self.HEALTHY:
            return False
        self.settled_at.copy_(self.images)
        return True

    def start(self) -> None:
        """Watch afresh."""
        for buffer in self.buffers():
            buffer.zero_()

    def spread(self) -> float:
        share = self.frequency / self.frequency.sum().clamp_min(1e-300)
        entropy = torch.special.entr(share).sum()
        return float((entropy.exp() - 1) / max(len(share) - 1, 1))
