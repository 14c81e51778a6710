"""One batch goes through the slots of a method."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.engine.last import Inspection, inspect
from holdfast.engine.slots import Slots
from holdfast.engine.state import State
from holdfast.engine.step import Step
from holdfast.parts.learn import Proposal
from holdfast.parts.route import Routed
from holdfast.parts.upkeep import Outcome

TOO_FAR = "logits after the update are NaN or Inf. reset(), and take a lower learning rate."


class Answer(NamedTuple):
    """The logits that leave, and what changes once the batch has proved good.

    finite: all that has to be so, the unrefined logits among them.
    """

    logits: Tensor
    commits: tuple[Callable[[], None], ...]
    finite: tuple[Tensor, ...]


@dataclass
class Batch:
    """What has been found out about a batch. `problem`: why nothing was changed, if it was not."""

    images: Tensor
    newest: int
    step: Step
    answer: Answer
    proposal: Proposal
    found: Inspection
    routed: Routed | None = None
    problem: str | None = field(init=False)
    stepped: bool = field(init=False)

    def __post_init__(self) -> None:
        self.problem = self.found.problem
        self.stepped = self.problem is None and self.proposal.gradient_norm is not None

    @property
    def logits(self) -> Tensor:
        return self.answer.logits.detach()[-self.newest :]


class Runner:
    """Takes batches through the slots: `look`, then `commit` if nothing is wrong."""

    def __init__(self, slots: Slots, state: State):
        self.slots = slots
        self.state = state
        self.network = slots.task.network

    @torch.no_grad()
    def predict(self, images: Tensor, newest: int) -> Tensor:
        """The logits that leave before any update; nothing but random draws changes."""
        routed = self._route(images)
        meets = None if routed is None else (routed.predict or routed.learn)
        with self.state.meeting(meets):
            return self._answer(Step(self.network, images, newest=newest)).logits[-newest:]

    def _route(self, images: Tensor) -> Routed | None:
        route = self.state.route
        return None if route is None else route(images, self.state.learnt())

    def _answer(self, step: Step) -> Answer:
        """What is predicted of a batch, refined."""
        predicted = step.cached(self.slots.prediction.forward)
        seen = predicted.seen or step
        chain = [predicted]
        for refine in self.slots.refine:
            chain.append(refine(chain[-1].logits, seen))
        commits = tuple(link.commit for link in chain if link.commit is not None)
        return Answer(chain[-1].logits, commits, tuple(link.logits for link in chain))

    def look(self, images: Tensor, newest: int) -> Batch:
        """What is predicted, and what there is to learn from the batch. What this changes, a
        state's `undo` takes back."""
        if self.slots.episode_steps:
            return self._look_in_episodes(images, newest)
        if len(images) == 1 and self.network.by_batch:
            return self._look_at_one(images)
        learn, after = self.slots.learn, self.slots.prediction.after
        routed = self._route(images)
        answer = None
        with torch.no_grad():
            if routed is not None:
                if routed.predict is not None and not after:
                    self.state.write(routed.predict)
                    answer = self._answer(Step(self.network, images, newest=newest))
                self.state.write(routed.learn)
            step = Step(
                self.network, images, learning=learn is not None, record=True, newest=newest
            )
            if after:
                # What is predicted is not known yet, but whether logits are finite.
                answer = _unrefined(step)
            answer = answer or self._answer(step)
        with torch.enable_grad():
            proposal = Proposal() if learn is None else learn.propose(step, self.slots.terms)
        found = inspect([*answer.finite, *step.computed_logits()], proposal)
        return Batch(images, newest, step, answer, proposal, found, routed)

    def _look_at_one(self, images: Tensor) -> Batch:
        """One image where batch statistics are needed leaves no trace: it is neither learnt from
        nor drawn for."""
        with self.slots.task.draws.restored():
            logits = self.predict(images, 1)
        answer, proposal = Answer(logits, (), (logits,)), Proposal(due=False)
        step = Step(self.network, images)
        return Batch(images, 1, step, answer, proposal, inspect([logits], proposal))

    def _look_in_episodes(self, images: Tensor, newest: int) -> Batch:
        """Each image by itself: from the source, a few steps, an answer; and back to the source."""
        answers: list[Answer] = []
        proposals: list[Proposal] = []
        for image in images[:, None]:
            self.state.forget()
            for _ in range(self.slots.episode_steps):
                proposals.append(self._take_step(Step(self.network, image, learning=True)))
            with torch.no_grad():
                answers.append(self._answer(Step(self.network, image)))
        self.state.forget()
        logits = torch.cat([answer.logits for answer in answers])
        finite = tuple(logits for answer in answers for logits in answer.finite)
        proposal = _together(proposals)
        found = inspect(list(finite), proposal)
        step = Step(self.network, images, newest=newest)
        return Batch(images, newest, step, Answer(logits, (), finite), proposal, found)

    def _take_step(self, step: Step) -> Proposal:
        """On one image, at once; one that is not finite is proposed only."""
        learn = self.slots.learn
        assert learn is not None  # `fill` has seen to it
        with torch.enable_grad():
            proposal = learn.propose(step, self.slots.terms)
        if proposal.finite():
            with torch.no_grad():
                for commit in proposal.commits:
                    commit()
                learn.apply()
        learn.clear()
        proposal.commits.clear()
        return proposal

    @torch.no_grad()
    def commit(self, batch: Batch) -> None:
        """Learn from a batch that is good, answer it if that was to wait, and see to the rest."""
        learn, prediction, proposal = self.slots.learn, self.slots.prediction, batch.proposal
        for commit in (*proposal.commits, *batch.answer.commits):
            commit()
        if learn is not None and batch.stepped and not self.slots.episode_steps:
            learn.apply()
        self.state.batches += 1
        if prediction.after and not self.slots.episode_steps:
            self._answer_after(batch)
        outcome = Outcome(batch.step, proposal, self.state.forget)
        for rule in self.slots.upkeep:
            if batch.stepped or rule.after == "batch":
                rule(outcome)
        if batch.routed is not None and batch.routed.commit is not None:
            batch.routed.commit(self.state.learnt())

    def _answer_after(self, batch: Batch) -> None:
        answer = self._answer(Step(self.network, batch.images, newest=batch.newest))
        batch.answer = answer
        if all(bool(logits.isfinite().all()) for logits in answer.finite):
            for commit in answer.commits:
                commit()
        elif batch.stepped:
            batch.problem = f"{self.slots.method.names} went too far: {TOO_FAR}"


def _unrefined(step: Step) -> Answer:
    logits = step.logits.detach()
    return Answer(logits, (), (logits,))


def _together(proposals: list[Proposal]) -> Proposal:
    """Those of a batch's episodes as one: mean losses, the largest gradient norm."""
    together = Proposal(backwards=sum(each.backwards for each in proposals))
    labels = dict.fromkeys(label for each in proposals for label in each.losses)
    for label in labels:
        spoke = [each for each in proposals if label in each.losses]
        together.losses[label] = torch.stack([each.losses[label] for each in spoke]).mean()
        together.images[label] = sum(each.images[label] for each in spoke)
    norms = [each.gradient_norm for each in proposals if each.gradient_norm is not None]
    together.gradient_norm = torch.stack(norms).amax() if norms else None
    return together
