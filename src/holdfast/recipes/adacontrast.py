"""AdaContrast: labels from near neighbours, and a contrast to what was seen before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast import Learner, register, setting
from holdfast.parts import (
    AUGMENTATIONS,
    AugmentationName,
    ByRunning,
    Descent,
    MeanTeacher,
    Ring,
    Select,
    Step,
    Task,
    Term,
    TermResult,
    Upkeep,
    View,
    ViewStep,
)


class Lesson(Step):
    """A strong view of a batch, and what it is to learn.

    taught: a label for each image. keys: directions of another view's features, by the slow net;
    weak: its forward of the weak view, which is to be remembered.
    """

    taught: Tensor
    keys: Tensor
    weak: Step

    def computed_logits(self) -> list[Tensor]:
        return [*super().computed_logits(), *self.weak.computed_logits()]


class Lessons(View):
    """Makes lessons, of what is remembered: a bank of features and predictions, for labels; a queue
    of keys and labels, to tell images from."""

    seen: Tensor

    def __init__(self, method: Adacontrast, task: Task):
        super().__init__()
        self.method = method
        self.slow = task.teacher.network
        self.weak = task.augment(AUGMENTATIONS[method.weak])
        self.strong = task.augment(AUGMENTATIONS[method.augment])
        network = task.network
        row = torch.zeros(network.feature_size, dtype=network.full_dtype, device=network.device)
        label = torch.zeros((), dtype=torch.int64, device=network.device)
        lags = method.ring == "released"
        self.bank = Ring(method.queue, row, row.new_zeros(network.classes), lags=lags)
        self.queue = Ring(method.queue, row, label)
        with task.draws.scope():
            self.queue.write(
                F.normalize(torch.randn(method.queue, len(row)), dim=1),
                torch.randint(network.classes, (method.queue,)),
            )
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def check(self, images: Tensor) -> None:
        self.bank.check(len(images))
        self.weak.check(images)
        self.strong.check(images)

    def forward(self, step: Step) -> Lesson:
        network, images, newest = step.network, step.images, step.newest
        weak, first, second = (
            network.prepare(view)
            for view in (self.weak(images), self.strong(images), self.strong(images, ahead=1))
        )
        with torch.no_grad():
            taught = self.labels(Step(network, weak, record=True))
            keys = F.normalize(Step(self.slow, second, record=True).features, dim=1)
            remembered = Step(self.slow, weak, record=True)
            remembered.features  # noqa: B018 (the forward is now)
        lesson = Lesson(network, first, learning=True, record=True, newest=newest)
        lesson.taught, lesson.keys, lesson.weak = taught, keys, remembered
        return lesson

    def labels(self, weak: Step) -> Tensor:
        """The student's own; once enough was seen, those of the nearest in the bank."""
        filled = int(self.bank.held)
        if int(self.seen) < self.method.warmup or not filled:
            return weak.labels
        features, probabilities = self.bank.rows()
        similarity = F.normalize(weak.features, dim=1) @ features.T
        nearest = similarity.topk(min(self.method.neighbours, filled), dim=1).indices
        return probabilities[nearest].mean(1).argmax(1)

    def commit(self, seen: Step) -> None:
        assert isinstance(seen, Lesson)
        newest = slice(-seen.newest, None)
        self.queue.write(seen.keys[newest], seen.taught[newest])
        features = F.normalize(seen.weak.features, dim=1)
        self.bank.write(features[newest], seen.weak.probabilities[newest])
        self.seen += seen.newest
        self.weak.commit()
        self.strong.commit(2)


class TaughtLabels(Term):
    """CE of the strong view to the labels taught."""

    def forward(self, step: Step) -> TermResult:
        assert isinstance(step, Lesson)
        return TermResult(F.cross_entropy(step.logits, step.taught), len(step.images))


class Contrast(Term):
    """Draws each image to its own key, and apart from those in the queue that have another label:
    similarities to the old keys, the labels of those that are about to replace them."""

    def __init__(self, weight: float, queue: Ring, temperature: float):
        super().__init__("contrastive", weight)
        self.rows, self.places = queue.rows, queue.places
        self.temperature = temperature

    def forward(self, step: Step) -> TermResult:
        assert isinstance(step, Lesson)
        keys, labels = self.rows()
        rows = self.places(step.newest).to(labels.device)
        labels = labels.index_copy(0, rows, step.taught[-len(rows) :])
        direction = F.normalize(step.features, dim=1)
        own = (direction * step.keys).sum(1, keepdim=True)
        same = labels[None] == step.taught[:, None]
        negatives = (direction @ keys.T).masked_fill(same, -torch.inf)
        share = (torch.cat([own, negatives], 1) / self.temperature).log_softmax(1)
        return TermResult(-share[:, 0].mean(), len(step.images))


class Diversity(Term):
    """Σ m ln m of the mean prediction m: all classes are to be predicted."""

    def forward(self, step: Step) -> TermResult:
        mean = step.probabilities.mean(0)
        return TermResult((mean * (mean + 1e-8).log()).sum(), len(step.images))


@register("adacontrast")
@dataclass(frozen=True)
class Adacontrast(Learner):
    """Learns labels that near neighbours vote for, a contrast to other images, and diversity.

    L = CE(p, ŷ) + CE(softmax of q·(k, queue of other labels)/τ, k) + Σ m ln m, m: mean of p
    """

    paper: ClassVar[str] = (
        "Chen et al. 2022, Contrastive test-time adaptation, arXiv 2204.10377, in the online form "
        "of Döbler's collection"
    )
    predicts: ClassVar[str] = "the student's logits by running statistics, after the update"
    note: ClassVar[str] = (
        "The authors' own code trains 15 epochs offline: it fills the bank from the whole target "
        "set first, has no warmup, and lets lr fall by a cosine, at ten times the rate for "
        "bottleneck and head; none of this is here. In the released online form, the first batch "
        "to overwrite a full bank overwrites the newest one, and the bank may outgrow `queue` by a "
        "part of a batch: ring=released does so, too; by default the oldest go. The queue begins "
        "with random directions and labels. Plug-ins see the strong view: debias, which was not "
        "published with it, chooses reliable images and moves its prototypes by that; on CIFAR-100 "
        "with ResNet-20 it collapsed so (9 % accurate, 34 % without debias)."
    )
    memory: ClassVar[str] = (
        "another copy of the network (the slow one), `queue` × (2 × features + classes) numbers "
        "and as many again for reset(), and similarities of a batch to the queue"
    )
    keeps_samples: ClassVar[bool] = True

    lr: float = setting(2e-4)
    nesterov: bool = setting(True)
    select: Literal["norm", "body", "all"] = setting("all")
    weight_decay: float = setting(1e-4, "share of a weight in its own gradient", at_least=0)
    queue: int = setting(16384, "images in the queue, and in the bank", at_least=1)
    neighbours: int = setting(10, "images of the bank that vote for a label", at_least=1)
    warmup: int = setting(1024, "images before neighbours vote", at_least=0)
    teacher_momentum: float = setting(0.999, "share of the old slow net", at_least=0, at_most=1)
    temperature: float = setting(0.07, "divides the similarities of the contrast", at_least=1e-6)
    weight_label: float = setting(1.0, "weight of the labels; 0 leaves them out", at_least=0)
    weight_contrastive: float = setting(1.0, "weight of the contrast; 0 leaves it out", at_least=0)
    weight_diversity: float = setting(1.0, "weight of diversity; 0 leaves it out", at_least=0)
    weak: AugmentationName = setting(
        "weak", "the view that labels are found by: weak, which flips at random, or a fixed one"
    )
    augment: AugmentationName = setting(
        "adacontrast", "both strong views: adacontrast's, or a fixed one"
    )
    ring: Literal["oldest", "released"] = setting(
        "oldest", "which rows of a full bank are overwritten first, or as in the released code"
    )

    def selection(self) -> Select:
        return Select(self.select, ByRunning())

    def _lessons(self, task: Task) -> Lessons:
        return Lessons(self, task)

    def terms(self, task: Task) -> list[Term]:
        queue = task.cached(self._lessons).queue
        terms: list[Term] = [
            TaughtLabels("label", self.weight_label),
            Contrast(self.weight_contrastive, queue, self.temperature),
            Diversity("diversity", self.weight_diversity),
        ]
        return [term for term in terms if term.weight]

    def descent(self) -> Descent:
        return replace(super().descent(), weight_decay=self.weight_decay)

    def learning(self, task: Task, parameters: Mapping[str, nn.Parameter]) -> ViewStep:
        return ViewStep(self.descent(), parameters, task.cached(self._lessons))

    def upkeep(self, task: Task) -> list[Upkeep]:
        # In the released code the slow net follows as the next batch begins: the same.
        return [MeanTeacher(task.teacher, self.teacher_momentum)]

    def predicts_after(self) -> bool:
        return True

    def always_drives(self) -> bool:
        return any((self.weight_label, self.weight_contrastive, self.weight_diversity))

    def forwards(self) -> tuple[int, int]:
        return 5, 5
