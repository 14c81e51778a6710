"""What the last batch did, whether a method acts at all, and whether it has collapsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from holdfast.engine.health import COSTS, HARMS, RETRAIN


class Answer(NamedTuple):
    """What a batch is answered with: the logits that leave; and `uncorrected`, those whose softmax
    are probabilities, which are the same but where a refinement does not keep them so."""

    logits: Tensor
    uncorrected: Tensor


@dataclass(frozen=True)
class Last:
    """What the last batch did. Losses are before weighting; `images` is how many each was over.

    due: whether the method could have taken a step, had all been finite; stepped: whether it did.
    step_rate: the share of the last hundred steps that were due which it took, driven by some term;
    None where none was due yet. hardly_acts: it is below 5 % over a hundred.
    collapsed: predictions have just collapsed; `adapter.health` says whether they still are.
    alarm: what has just begun to ring. rolled_back: the last healthy state was put back.
    fallback: the source model answered, and nothing that was learnt from the batch has stayed.
    Under steady, by batch norm layer: alpha, how far it believed the batch (0: the source alone);
    drift, how far the batch is from the source, 1 being as far as source batches go. split: how
    many images each of two kinds had, if there were two.
    reset: a rule of the method (rdumb, sar, asr, aetta) took back what was learnt.
    Under petta, gamma: how far class means have diverged from the source's, 0 to 1. Under aetta,
    estimate: of the accuracy, in percent. Under reservoir, model: which one the batch met; models:
    how many are open.
    uncorrected: logits of the batch whose softmax are probabilities, where those of the logits that
    were returned are none (`prior`); None where they are.
    notice: what a person should know of the stream, said once.
    """

    batch: int = 0
    losses: Mapping[str, float] = field(default_factory=dict)
    images: Mapping[str, int] = field(default_factory=dict)
    reliable: int | None = None
    due: bool = False
    stepped: bool = False
    step_rate: float | None = None
    hardly_acts: bool = False
    inactivity: str | None = None
    gradient_norm: float | None = None
    refused: str | None = None
    collapsed: bool = False
    alarm: tuple[str, ...] = ()
    rolled_back: bool = False
    fallback: bool = False
    forwards: int = 0
    backwards: int = 0
    seconds: float = 0.0
    alpha: Mapping[str, float] = field(default_factory=dict)
    drift: Mapping[str, float] = field(default_factory=dict)
    split: tuple[int, ...] = ()
    gamma: float | None = None
    reset: bool = False
    estimate: float | None = None
    model: int | None = None
    models: int | None = None
    notice: str | None = None
    uncorrected: Tensor | None = field(default=None, compare=False, repr=False)

    def news(self, method: str, *, quiet: bool = False) -> list[str]:
        """What of it a person should be told; if `quiet`, nothing of health."""
        news = []
        if self.refused is not None:
            opening = "" if self.stepped else "A batch was not adapted to: "
            news.append(f"{opening}{self.refused}")
        if self.inactivity is not None:
            news.append(self.inactivity)
        if self.notice is not None:
            news.append(self.notice)
        if quiet:
            return news
        acts = (
            "adapter.health says more; reset() starts again; guard='rollback' or 'fallback' acts."
        )
        if self.rolled_back:
            acts = "The last healthy state was put back."
        elif self.fallback:
            acts = "The source model answers while this lasts."
        # No guard acts on drift, which is not the adapter's doing.
        advice = {HARMS: acts, COSTS: f"adapter.health says more. {RETRAIN}"}
        # By the batch, since Python shows a warning of the same words only once.
        when = f"batch {self.batch}"
        news += [f"{method}: {text} ({when}). {advice[text]}" for text in self.alarm]
        if self.collapsed:
            news.append(
                f"{method} has collapsed ({when}): its predictions fall into a few classes. {acts}"
            )
        return news


class Watched(NamedTuple):
    """What leaves after a batch was watched: its answer; what has begun to ring; whether
    predictions have just collapsed; whether the last healthy state was put back."""

    answer: Answer
    alarm: tuple[str, ...] = ()
    collapsed: bool = False
    went_back: bool = False


class Activity(nn.Module):
    """How often a method took the steps that it could have taken, of late.

    A filter that leaves out nearly every image stops a method without a word. Over the last
    hundred steps that were due, a share below 5 % means that it hardly acts.
    """

    OVER = 100
    HARDLY = 0.05

    taken: Tensor
    due: Tensor
    told: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("taken", torch.zeros(self.OVER, dtype=torch.bool))
        self.register_buffer("due", torch.zeros((), dtype=torch.int64))
        self.register_buffer("told", torch.zeros((), dtype=torch.bool))

    def forward(self, taken: bool) -> bool:
        """Take in a step that was due; True once, when it is seen that the method hardly acts."""
        self.taken[int(self.due) % self.OVER] = taken
        self.due += 1
        news = self.hardly_acts and not bool(self.told)
        self.told |= news
        return news

    @property
    def rate(self) -> float | None:
        """The share of the last hundred; None before the first."""
        count = min(int(self.due), self.OVER)
        return float(self.taken[:count].float().mean()) if count else None

    @property
    def hardly_acts(self) -> bool:
        return int(self.due) >= self.OVER and (self.rate or 0) < self.HARDLY


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

    @property
    def shares(self) -> Tensor:
        """The share of each class among predictions."""
        return self.frequency / self.frequency.sum().clamp_min(1e-300)

    def spread(self) -> float:
        entropy = torch.special.entr(self.shares).sum()
        return float((entropy.exp() - 1) / max(len(self.shares) - 1, 1))

    def overlap(self, other: Watch) -> float:
        """1: the same classes are predicted as often; 0: none is predicted by both."""
        return float(torch.minimum(self.shares, other.shares).sum())
