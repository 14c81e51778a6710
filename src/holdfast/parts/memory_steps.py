"""Steps that are taken from a memory of the stream's images."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from holdfast.engine.checks import channels_come_last
from holdfast.engine.network import Network
from holdfast.engine.step import JoinedStep, Step
from holdfast.parts.augment import Augment
from holdfast.parts.learn import Learn, PlainStep, Proposal
from holdfast.parts.memory import Memory
from holdfast.parts.predict import Predicted, Prediction
from holdfast.parts.terms import Term
from holdfast.parts.upkeep import Teacher


class MemoryStep(Learn):
    """Puts images into memory one by one, and takes a step from all of it after every so many,
    wherever in a batch that is; or once a batch. They are labelled by the prediction of the batch,
    made before.

    inner: how a step is taken. every: None for once a batch.
    """

    at_once = True

    def __init__(self, inner: PlainStep, memory: Memory, prediction: Prediction, every: int | None):
        self.inner = inner
        self.parameters = inner.parameters
        self.memory = memory
        self.prediction = prediction
        self.every = every

    def tensors(self) -> dict[str, Tensor]:
        return self.inner.tensors()

    def extra_state(self) -> dict[str, Tensor]:
        return self.memory.state()

    def load_extra_state(self, saved: Mapping[str, Tensor]) -> None:
        self.memory.load(saved, self.prediction.network.device)

    def propose(self, step: Step, terms: list[Term]) -> Proposal:
        self.check(step.images)
        images, proposal, start = step.images[-step.newest :], Proposal(due=False), 0
        while start < len(images):
            end = self._next_step(start, len(images))
            self.memory.add(images[start:end], self.labelling_logits(step, start, end))
            start = end
            if self.every is not None and self.memory.clock % self.every:
                continue
            if not self.memory.items:  # a step is due, but there is nothing to learn from
                proposal.due = True
                continue
            update = self.inner.propose(self.view(step.network), terms)
            update.backwards += proposal.backwards
            proposal = update
            if not update.finite():
                break
            self.take(update)
        return proposal

    def _next_step(self, start: int, end: int) -> int:
        if self.every is None:
            return end
        return min(end, start + self.every - self.memory.clock % self.every)

    def check(self, images: Tensor) -> None:
        """Whether these can be kept and learnt from."""
        for item in self.memory.items[:1]:
            if item.image.shape != images.shape[1:]:
                shape = tuple(images.shape)
                raise ValueError(
                    f"The memory holds images of shape {tuple(item.image.shape)}, this batch is "
                    f"{shape}: keep one size, or reset() first.{channels_come_last(shape)}"
                )

    def labelling_logits(self, step: Step, start: int, end: int) -> Tensor:
        """The logits that label these of the batch's new images."""
        return step.cached(self.prediction.forward).logits[-step.newest :][start:end]

    def view(self, network: Network) -> Step:
        """The look at the memory that is learnt from."""
        return Step(network, network.prepare(self.memory.images), learning=True, record=True)

    @torch.no_grad()
    def take(self, update: Proposal) -> None:
        """Take a step that has proved good."""
        for commit in update.commits:
            commit()
        update.commits.clear()
        self.inner.apply()
        for rule in self.settle:
            rule()

    def apply(self) -> None:
        """Nothing is left to do: steps were taken as they came."""

    def clear(self) -> None:
        self.inner.clear()


class TeacherMemoryStep(MemoryStep):
    """Labels are the teacher's; the student learns from an augmented view, and the teacher follows
    it."""

    def __init__(
        self,
        inner: PlainStep,
        memory: Memory,
        prediction: Prediction,
        every: int | None,
        *,
        augment: Augment,
        teacher: Teacher,
        teacher_momentum: float,
    ):
        super().__init__(inner, memory, prediction, every)
        self.augment = augment
        self.teacher = teacher
        self.teacher_momentum = teacher_momentum

    def tensors(self) -> dict[str, Tensor]:
        return {**super().tensors(), "views": self.augment.calls}

    def check(self, images: Tensor) -> None:
        super().check(images)
        self.augment.check(images)

    def view(self, network: Network) -> Step:
        images = self.augment(network.prepare(self.memory.images))
        return Step(network, network.prepare(images), learning=True, record=True)

    def take(self, update: Proposal) -> None:
        super().take(update)
        self.augment.commit()
        self.follow()

    def follow(self) -> None:
        self.teacher.follow(self.teacher_momentum)


class StoredTeacher(Prediction):
    """The teacher's logits, by the statistics it has stored."""

    def __init__(self, teacher: Teacher):
        super().__init__(teacher.network)
        self.teacher = teacher

    def forward(self, step: Step) -> Predicted:
        seen = self.teacher.beside(step)
        return Predicted(seen.logits, seen=seen)


class AnsweringStep(MemoryStep):
    """Labels are the network's own, and so are the answers: each image is predicted after the
    steps that earlier ones led to, in the same batch too.

    Between two steps nothing changes, so that all images there go through the network as one.
    """

    answers = True

    def propose(self, step: Step, terms: list[Term]) -> Proposal:
        self.seen: list[Step] = []
        try:
            proposal = super().propose(step, terms)
            seen = JoinedStep(self.seen)
            proposal.answer = Predicted(seen.logits, seen=seen)
            return proposal
        finally:
            self.seen = []

    def labelling_logits(self, step: Step, start: int, end: int) -> Tensor:
        seen = Step(step.network, step.images[-step.newest :][start:end])
        self.seen.append(seen)
        return seen.logits
