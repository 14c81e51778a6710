"""One batch goes through the slots of a method."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor

from holdfast.engine.last import Answer
from holdfast.engine.state import State, routed
from holdfast.engine.step import Step
from holdfast.parts.learn import Proposal
from holdfast.parts.predict import Predicted, Routed
from holdfast.parts.upkeep import Outcome

TOO_FAR = "logits after the update are NaN or Inf. reset(), and take a lower learning rate."


@dataclass
class Examined:
    """What has been found out about a batch.

    answer: the prediction, and what each refinement made of the one before it.
    losses, gradient_norm: the proposal's, as numbers.
    problem: why nothing was changed, if it was not.
    reset: whether a rule took back what was learnt.
    """

    step: Step
    answer: list[Predicted]
    proposal: Proposal
    routed: Routed | None = None
    losses: dict[str, float] = field(init=False)
    gradient_norm: float | None = field(init=False)
    problem: str | None = field(init=False)
    stepped: bool = field(init=False)
    reset: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        steps = [self.step] if self.proposal.seen is None else [self.step, self.proposal.seen]
        logits = [link.logits for link in self.answer]
        logits += [values for step in steps for values in step.computed_logits()]
        largest = torch.stack([values.detach().abs().amax() for values in logits]).amax()
        named, norm = {"logits": largest, **self.proposal.losses}, self.proposal.gradient_norm
        if norm is not None:
            named["gradient norm"] = norm.to(largest)
        # All at once: on a GPU every number that is looked at waits for the device.
        values = dict(zip(named, torch.stack(list(named.values())).tolist(), strict=True))
        bad = [name for name, value in values.items() if not math.isfinite(value)]
        self.losses = {label: values[label] for label in self.proposal.losses}
        self.gradient_norm = values.get("gradient norm")
        self.problem = f"{', '.join(bad)} turned NaN or Inf. Nothing was changed." if bad else None
        self.stepped = not bad and norm is not None

    @property
    def reliable(self) -> int | None:
        """How many images were reliable, where a method asked."""
        return (self.proposal.seen or self.step).reliable_count


class Runner:
    """Takes batches through the slots: `examine`, then `commit` if nothing is wrong."""

    def __init__(self, state: State):
        self.state = state
        self.slots = state.slots
        self.network = state.slots.task.network

    def predict(self, images: Tensor, newest: int) -> Answer:
        """What leaves before any update, with no change to anything."""
        return self._given(self._foresee(images, newest), newest)

    @torch.no_grad()
    def _foresee(self, images: Tensor, newest: int) -> list[Predicted]:
        with self.state.draws.restored():
            routed = self._route(images) or Routed({})
            own = None if self.slots.prediction.after else routed.predict
            with self.state.meeting(routed.learn if own is None else own):
                return self._answer(Step(self.network, images, newest=newest))

    def given(self, batch: Examined) -> Answer:
        """What leaves of a batch that was examined."""
        return self._given(batch.answer, batch.step.newest)

    def _given(self, links: list[Predicted], newest: int) -> Answer:
        """The last of a chain of answers; and the last one whose softmax are probabilities."""
        probable = len(links)
        for index, refine in enumerate(self.slots.refine, start=1):
            if not refine.keeps_probabilities:
                probable = min(probable, index)
        logits = links[-1].logits.detach()[-newest:]
        if probable == len(links):
            return Answer(logits, logits)
        return Answer(logits, links[probable - 1].logits.detach()[-newest:])

    def _route(self, images: Tensor) -> Routed | None:
        route = self.state.route
        return None if route is None else route(images, routed(self.state.tensors()))

    def _answer(self, step: Step, predicted: Predicted | None = None) -> list[Predicted]:
        """The prediction, if it has not been made, and what becomes of it."""
        answer = [predicted or step.cached(self.slots.prediction.forward)]
        seen = answer[0].seen or step
        for refine in self.slots.refine:
            answer.append(refine(answer[-1].logits, seen))
        return answer

    def examine(self, images: Tensor, newest: int) -> Examined:
        """What is predicted, and what there is to learn from the batch. What this changes, a
        state's way back (`begin`) undoes."""
        if self.slots.learn is not None:
            self.slots.learn.check(images)
        if self.slots.episode_steps:
            return self._examine_in_episodes(images, newest)
        if len(images) == 1 and self.network.by_batch:
            # It leaves no trace: one image has no batch statistics to learn by.
            answer = [Predicted(link.logits) for link in self._foresee(images, 1)]
            return Examined(Step(self.network, images), answer, Proposal(due=False))
        learn, after = self.slots.learn, self.slots.prediction.after
        routed = self._route(images)
        answer = []
        with torch.no_grad():
            if routed is not None:
                if routed.predict is not None and not after:
                    with self.state.meeting(routed.predict):
                        answer = self._answer(Step(self.network, images, newest=newest))
                self.state.write(routed.learn)
        step = Step(self.network, images, learning=learn is not None, record=True, newest=newest)
        return Examined(step, *self.consider(step, answer), routed)

    def consider(self, step: Step, answer: list[Predicted]) -> tuple[list[Predicted], Proposal]:
        """The answer to a batch, if it has not been made, and what there is to learn from it."""
        learn, after = self.slots.learn, self.slots.prediction.after
        with torch.no_grad():
            if not (answer or after or self.slots.answers_between):
                answer = self._answer(step)
            for rule in self.slots.upkeep:
                rule.before(step)
        with torch.enable_grad():
            proposal = Proposal() if learn is None else learn.propose(step, self.slots.terms)
        with torch.no_grad():
            if after:
                # What is predicted is not known yet, but whether logits are finite.
                answer = [Predicted((proposal.seen or step).logits)]
            answer = answer or self._answer(step, proposal.answer)
        return answer, proposal

    def _examine_in_episodes(self, images: Tensor, newest: int) -> Examined:
        """Each image by itself: from the source, a few steps, an answer; and back to the source."""
        answers: list[list[Predicted]] = []
        proposals: list[Proposal] = []
        for image in images[:, None]:
            self.state.forget()
            for _ in range(self.slots.episode_steps):
                proposals.append(self._take_step(Step(self.network, image, learning=True)))
            with torch.no_grad():
                answers.append(self._answer(Step(self.network, image, record=True)))
        self.state.forget()
        # Each link for all images; what they would commit is as short-lived as what was learnt.
        answer = [
            Predicted(torch.cat([link.logits for link in links]))
            for links in zip(*answers, strict=True)
        ]
        return Examined(Step(self.network, images, newest=newest), answer, _together(proposals))

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
    def commit(self, batch: Examined) -> None:
        """Learn from a batch that is good, answer it if that was to wait, and see to the rest."""
        learn, at_once = self.slots.learn, self.slots.episode_steps > 0
        for commit in batch.proposal.commits:
            commit()
        _commit(batch.answer)
        if learn is not None and batch.stepped and not at_once:
            learn.apply()
        self.state.batches += 1
        if self.slots.prediction.after and not at_once:
            batch.answer = self._answer(
                Step(self.network, batch.step.images, newest=batch.step.newest)
            )
            if all(bool(link.logits.isfinite().all()) for link in batch.answer):
                _commit(batch.answer)
            elif batch.stepped:
                batch.problem = f"{self.slots.method.names} went too far: {TOO_FAR}"

        def forget(*, optimizer: bool = True, keep: Collection[str] = ()) -> None:
            self.state.forget(optimizer=optimizer, keep=keep)
            batch.reset = True

        outcome = Outcome(batch.step, batch.proposal, forget)
        for rule in self.slots.upkeep:
            if batch.stepped or rule.after == "batch":
                rule(outcome)
        if batch.routed is not None and batch.routed.commit is not None:
            batch.routed.commit(routed(self.state.tensors()))


def _commit(answer: list[Predicted]) -> None:
    for link in answer:
        if link.commit is not None:
            link.commit()


def _together(proposals: list[Proposal]) -> Proposal:
    """The proposals of a batch's episodes as one: mean losses, the largest gradient norm."""
    together = Proposal(backwards=sum(proposal.backwards for proposal in proposals))
    labels = dict.fromkeys(label for proposal in proposals for label in proposal.losses)
    for label in labels:
        spoke = [proposal for proposal in proposals if label in proposal.losses]
        together.losses[label] = torch.stack([proposal.losses[label] for proposal in spoke]).mean()
        together.images[label] = sum(proposal.images[label] for proposal in spoke)
    norms = [proposal.gradient_norm for proposal in proposals if proposal.gradient_norm is not None]
    together.gradient_norm = torch.stack(norms).amax() if norms else None
    return together
