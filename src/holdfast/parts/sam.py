"""Sharpness-aware steps: the gradient is taken where the loss is highest nearby."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from holdfast.engine.step import Step
from holdfast.parts.learn import Descent, PlainStep, Proposal
from holdfast.parts.terms import Term


class SamStep(PlainStep):
    """Two looks at a batch: climb along the gradient by ρ, and step with the gradient found there.

    Where no term speaks, the gradient is zero and the optimiser steps all the same, so that
    momentum moves the weights on, as in the released code.
    """

    def __init__(self, descent: Descent, parameters: Mapping[str, nn.Parameter], rho: float):
        super().__init__(descent, parameters)
        self.rho = rho

    def propose(self, step: Step, terms: list[Term]) -> Proposal:
        first = super().propose(step, terms)
        if first.gradient_norm is None:
            return self._step_without_gradient(first)
        if not first.finite():
            return first
        with self._climbed(first.gradient_norm):
            again = Step(step.network, step.images, learning=True, aside=True, before=step)
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
