"""From what terms say to a step."""

import pytest
import torch
from toys import stream, toy_net

from holdfast.engine.network import Network
from holdfast.engine.step import Step
from holdfast.parts.descent import Descent
from holdfast.parts.learn import PlainStep
from holdfast.parts.terms import Term, TermResult


class Sureness(Term):
    """Its probabilities carry a gradient, or they do not."""

    def __init__(self, label, detached=False, drives=True):
        super().__init__(label)
        self.detached = detached
        self.drives = drives

    def forward(self, step):
        p = step.detached_probabilities if self.detached else step.probabilities
        return TermResult(-p.amax(1).mean(), len(step.images))


def propose(*terms, trains=True):
    network = Network(toy_net())
    parameters = dict(network.model.norm1.named_parameters())
    network.model.requires_grad_(trains)
    learn = PlainStep(Descent(0.1, 0.0, "sgd", False), parameters)
    return learn.propose(Step(network, stream(("all",))[0], learning=True), list(terms))


def test_probabilities_carry_the_gradient_and_detached_ones_do_not():
    assert propose(Sureness("sure")).gradient_norm > 0
    network = Network(toy_net())
    network.model.requires_grad_(True)
    step = Step(network, stream(("all",))[0], learning=True)
    assert step.probabilities.requires_grad
    assert not step.detached_probabilities.requires_grad
    assert torch.equal(step.probabilities, step.detached_probabilities)


def test_a_driving_term_without_a_gradient_is_named_though_another_has_one():
    with pytest.raises(ValueError, match="'still' carries no gradient") as error:
        propose(Sureness("sure"), Sureness("still", detached=True))
    assert "step.probabilities" in str(error.value)


def test_a_regulariser_may_be_constant():
    proposal = propose(Sureness("sure"), Sureness("still", detached=True, drives=False))
    assert proposal.gradient_norm > 0
    assert proposal.losses.keys() == {"sure", "still"}


def test_a_model_that_runs_without_gradients_is_told_apart():
    with pytest.raises(ValueError, match="under no_grad"):
        propose(Sureness("sure"), trains=False)
