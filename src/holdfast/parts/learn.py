"""How a step is taken: losses to gradients, gradients to weights. Loss scaling lives here only."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from holdfast.engine.step import Step
from holdfast.parts.descent import Descent, first_state
from holdfast.parts.predict import Predicted
from holdfast.parts.terms import Pull, Term, Weigher

# Keeps the small gradients of float16 forwards from vanishing. It is fixed, not searched for as
# torch's GradScaler does: a search would be one more state, and an overflow is reported anyway.
FLOAT16_SCALE = 2.0**10

NOTHING_TRAINS = (
    "No parameter that trains has a part in the loss: does the model run under no_grad, or do all "
    "its norm layers follow the features?"
)
NO_GRADIENT = (
    "The loss of the term {label!r} carries no gradient, so that nothing would be learnt from it: "
    "make it from step.logits, step.probabilities, step.entropy or step.features, and detach "
    "targets only. A term that is not to make a step happen says drives = False."
)


@dataclass
class Proposal:
    """Gradients ready for a step, and what would change with it. All is as it was before; but see
    `Learn.at_once`.

    due: whether a step could have been taken; not so between the steps of a method that takes one
    after every so many images.
    answer: what is predicted, where `Learn.answers`.
    seen: the forward that was learnt from, where that is not the batch's own.
    """

    losses: dict[str, Tensor] = field(default_factory=dict)
    images: dict[str, int] = field(default_factory=dict)
    commits: list[Callable[[], None]] = field(default_factory=list)
    gradient_norm: Tensor | None = None
    backwards: int = 0
    due: bool = True
    answer: Predicted | None = None
    seen: Step | None = None

    @property
    def stepped(self) -> bool:
        """Whether there is a gradient to step by."""
        return self.gradient_norm is not None

    def finite(self) -> bool:
        """Whether there is a gradient, and it and all losses are finite."""
        if self.gradient_norm is None:
            return False
        return all(map(math.isfinite, (self.gradient_norm, *self.losses.values())))


class Settle(nn.Module, ABC):
    """Moves weights on as the last part of a step: it is done before a teacher follows, before an
    answer that is made after the update, and before all upkeep. Its buffers are its state, which
    is learnt as weights are."""

    @abstractmethod
    def forward(self) -> None: ...


class Learn(ABC):
    """Turns what terms say of a batch into a step."""

    # Whether steps are taken while proposing, so that the adapter takes a snapshot before.
    at_once = False
    # Whether it also predicts the batch, between the steps that it takes at once.
    answers = False
    # What ends a step, in the order written. There from the stream's first batch on.
    settle: Sequence[Settle] = ()

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The state, by name; the tensors themselves."""

    def extra_state(self) -> dict[str, Tensor]:
        """State whose size is not known beforehand, by name."""
        return {}

    def load_extra_state(self, saved: Mapping[str, Tensor]) -> None:  # noqa: B027 (most have none)
        """Take back what `extra_state` gave; nothing: begin without."""

    def check(self, images: Tensor) -> None:  # noqa: B027 (most take any)
        """Whether a batch can be learnt from, asked before anything is done with it."""

    @abstractmethod
    def propose(self, step: Step, terms: list[Term]) -> Proposal:
        """Losses and gradients. Weights may be moved for a trial, if they are back where they were
        when it returns or fails."""

    @abstractmethod
    def apply(self) -> None:
        """Take the step that was proposed, and let weights settle."""

    @abstractmethod
    def clear(self) -> None:
        """Drop the gradients."""


class PlainStep(Learn):
    """One backward of the weighted sum of all terms, one step of the optimiser."""

    def __init__(self, descent: Descent, parameters: Mapping[str, nn.Parameter]):
        self.parameters = parameters
        self.descent = descent
        self.optimizer = descent.build(parameters.values())
        for parameter in parameters.values():
            self.optimizer.state[parameter] = first_state(descent, parameter)

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"{name}.{key}": value
            for name, parameter in self.parameters.items()
            for key, value in self.optimizer.state[parameter].items()
        }

    def propose(self, step: Step, terms: list[Term]) -> Proposal:
        """Without a term that drives there is no gradient, and no step."""
        proposal = Proposal()
        pulls = [term for term in terms if isinstance(term, Pull)]
        holding = [term for term in terms if not term.drives and term not in pulls]
        weighers = [pull for pull in pulls if isinstance(pull, Weigher)]
        weighed = [term for weigher in weighers for term in weigher.own]
        driving = [term for term in terms if term.drives and term not in weighed]
        total = _ask(step, driving, proposal)
        for weigher in weighers:
            weigher.weigh(step, total, self.descent)
            total = _ask(step, weigher.own, proposal, total)
        if total is not None:
            total = _ask(step, holding, proposal, total)
            assert total is not None
            proposal.backwards = 1
            half = step.network.precision is torch.float16
            proposal.gradient_norm = self._gradients(total, FLOAT16_SCALE if half else 1.0)
        if pulls:
            self._pull(step, pulls, holding, proposal)
        return proposal

    def _pull(self, step: Step, pulls: list[Pull], holding: list[Term], proposal: Proposal) -> None:
        """Tell pulls the gradient, which without a step is that of the terms that hold; and add
        their own, which takes no pass through the network."""
        if proposal.stepped:
            by_name = {name: parameter.grad for name, parameter in self.parameters.items()}
        else:
            by_name = self._gradient_of(_ask(step, holding, Proposal()))
        if step.before is None:  # nothing is committed of a second look
            proposal.commits += [pull.told(by_name) for pull in pulls]
        loss = _ask(step, pulls, proposal) if proposal.stepped else None
        if loss is None:
            return
        for name, gradient in self._gradient_of(loss).items():
            if gradient is not None:
                own = self.parameters[name]
                own.grad = gradient if own.grad is None else own.grad + gradient
        gradients = [
            parameter.grad for parameter in self.parameters.values() if parameter.grad is not None
        ]
        proposal.gradient_norm = torch.nn.utils.get_total_norm(gradients)

    def _gradient_of(self, loss: Tensor | None) -> dict[str, Tensor | None]:
        if loss is None or not loss.requires_grad:
            return dict.fromkeys(self.parameters)
        gradients = torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True)
        return dict(zip(self.parameters, gradients, strict=True))

    def apply(self) -> None:
        self.optimizer.step()
        self.clear()
        for rule in self.settle:
            rule()

    def descend(self, loss: Tensor, lr: float) -> bool:
        """One step on a loss of one's own, at a rate of its own; none, and False, if the loss or
        its gradient is not finite."""
        group = self.optimizer.param_groups[0]
        usual, group["lr"] = group["lr"], lr
        try:
            norm = self._gradients(loss, 1.0)
            finite = math.isfinite(loss.detach()) and math.isfinite(norm)
            if finite:
                self.apply()
            return finite
        finally:
            self.clear()
            group["lr"] = usual

    def clear(self) -> None:
        for parameter in self.parameters.values():
            parameter.grad = None

    def _gradients(self, total: Tensor, scale: float) -> Tensor:
        if not total.requires_grad:
            raise ValueError(NOTHING_TRAINS)
        (total * scale if scale != 1 else total).backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        if scale != 1 and gradients:  # in a fleet's step they are yet to come
            torch._foreach_div_(gradients, scale)
        return torch.nn.utils.get_total_norm(gradients)


def _ask(
    step: Step, terms: Iterable[Term], proposal: Proposal, total: Tensor | None = None
) -> Tensor | None:
    """The sum of what terms say of a batch, added to `total` and entered in the proposal; None
    where none speaks."""
    for term in terms:
        result = term(step)
        if result is None:
            continue
        if result.commit is not None:
            proposal.commits.append(result.commit)
        if result.loss is None:
            continue
        if term.drives and not result.loss.requires_grad:
            named = NO_GRADIENT.format(label=term.label)
            raise ValueError(named if step.logits.requires_grad else NOTHING_TRAINS)
        weighted = term.weight * result.loss
        total = weighted if total is None else total + weighted
        proposal.losses[term.label] = result.loss.detach()
        proposal.images[term.label] = result.images
    return total


class SamStep(PlainStep):
    """Two looks at a batch: climb along the gradient by ρ, and step with the gradient found there.

    Where no term speaks, the gradient is zero and the optimiser steps all the same, so that
    momentum moves the weights on, as in the released code.

    records_both: whether norm layers take in the second look, as they do the first.
    """

    def __init__(
        self,
        descent: Descent,
        parameters: Mapping[str, nn.Parameter],
        rho: float,
        *,
        records_both: bool = False,
    ):
        super().__init__(descent, parameters)
        self.rho = rho
        self.records_both = records_both

    def propose(self, step: Step, terms: list[Term]) -> Proposal:
        first = super().propose(step, terms)
        if first.gradient_norm is None:
            return self._step_without_gradient(first)
        if not first.finite():
            return first
        with self._climbed(first.gradient_norm):
            both = self.records_both
            again = Step(
                step.network,
                step.images,
                learning=True,
                record=both,
                aside=not both,
                before=step,
            )
            second = super().propose(again, terms)
        # What terms take in is what they saw with the weights as they were.
        second.commits = first.commits
        second.backwards += first.backwards
        return self._step_without_gradient(second) if second.gradient_norm is None else second

    @contextmanager
    def _climbed(self, norm: Tensor) -> Iterator[None]:
        """Inside, weights are moved by ρ along their gradient; then they are where they were."""
        pairs = [(p.data, p.grad) for p in self.parameters.values() if p.grad is not None]
        weights, gradients = zip(*pairs, strict=True)
        before = [weight.clone() for weight in weights]
        torch._foreach_add_(weights, torch._foreach_mul(gradients, self.rho / (norm + 1e-12)))
        self.clear()
        try:
            yield
        finally:
            torch._foreach_copy_(weights, before)

    def _step_without_gradient(self, proposal: Proposal) -> Proposal:
        for parameter in self.parameters.values():
            parameter.grad = torch.zeros_like(parameter)
        proposal.gradient_norm = torch.zeros(())
        return proposal


class View(nn.Module, ABC):
    """Other images to learn from than those of a batch. Its buffers are its state."""

    @abstractmethod
    def check(self, images: Tensor) -> None:
        """Whether there is a view of these."""

    @abstractmethod
    def forward(self, step: Step) -> Step:
        """What terms are asked about, instead of the batch's own forward."""

    @abstractmethod
    def commit(self, seen: Step) -> None:
        """Take in what was seen, when it has proved good."""


class ViewStep(PlainStep):
    """A step on a view of the batch, which all terms are asked about, those of plug-ins too."""

    def __init__(self, descent: Descent, parameters: Mapping[str, nn.Parameter], view: View):
        super().__init__(descent, parameters)
        self.view = view

    def tensors(self) -> dict[str, Tensor]:
        return {**super().tensors(), **self.view.state_dict(prefix="view.")}

    def check(self, images: Tensor) -> None:
        self.view.check(images)

    def propose(self, step: Step, terms: list[Term]) -> Proposal:
        seen = self.view(step)
        proposal = super().propose(seen, terms)
        proposal.commits.append(lambda: self.view.commit(seen))
        proposal.seen = seen
        return proposal
