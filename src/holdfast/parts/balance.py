"""How strongly two terms pull on features, set along the stream instead of by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from holdfast.engine.step import Step
from holdfast.parts.descent import Descent
from holdfast.parts.terms import Term, TermResult, Weigher

# How far a step of the terms may move what trains, as a share of its length; and features, as a
# share of the width of a class.
KAPPA = 0.006
WIDTH = 0.06
# The share of the way back to the source's weights that is taken before a step of full pace.
BACK = 0.03
# Weight of the average so far in the next one; weight of a batch in the frequencies of classes.
OLD = 0.9
NEW_FREQUENCY = 0.05
# A class that is rarer than this share of an even frequency counts as if it were that rare.
RAREST = 0.1


class ClassShares(nn.Module):
    """φ, how often each class has been predicted of late: 1/C at first."""

    def __init__(self, rows: Tensor):
        super().__init__()
        self.frequency = nn.Buffer(torch.full_like(rows[:, 0], 1 / len(rows)))

    def weights(self, labels: Tensor) -> Tensor:
        """Weights of images of these classes: the rarer the class, the larger; their mean is 1."""
        weights = 1 / (len(self.frequency) * self.frequency[labels]).clamp_min(RAREST)
        return weights / weights.mean()

    def update(self, probabilities: Tensor) -> None:
        """Take in the mean prediction of a batch."""
        self.frequency.lerp_(probabilities, NEW_FREQUENCY)


class Seen(NamedTuple):
    """What a batch leads to: the next averages, the sum of all forces, the mean prediction, and how
    far weights go back to the source's."""

    averages: dict[str, Tensor]
    force: Tensor
    prediction: Tensor
    back: Tensor


class Balance(Weigher):
    """Lets two terms move what trains at a pace of their own, whatever the learning rate.

    A force is Σ_i ‖∂L/∂f_i‖. Each of the T terms is to pull with about the force a, by the weights
    w_ema = a/n̄_ema and w_src = a σ/2:

    a = p κ ‖θ0‖ (1 − m) / (lr γ̄ T),  p = (|R|/B) · min(1, s σ / (γ̄ κ ‖θ0‖))

    γ̄ is what a force makes of a gradient: ‖∇θ‖ over the sum of all forces, the host's among them.
    So all T move weights by lr γ̄ aT / (1 − m), at most κ of their length; and features, along the
    force, by γ̄ times that, at most the share s of a class's width σ. Before each step weights go
    δ p of the way back to the source's, so that a slow pace leaves the host alone.

    While γ̄ is not known a is a third of the force of the entropy over R. To Adam the size of a
    gradient is nothing: there a is the host's force over T, without one that of the entropy, and p
    goes by what a step of Adam moves at most, lr √(number of weights). An average of 0 has seen
    nothing yet.
    """

    entropy: Tensor
    host: Tensor
    ema: Tensor
    gain: Tensor

    def __init__(
        self,
        ema: Term | None,
        src: Term | None,
        shares: ClassShares,
        chosen: Callable[[Step], Tensor],
        width: float,
        parameters: Mapping[str, nn.Parameter],
    ):
        super().__init__("balance", [term for term in (ema, src) if term is not None])
        self.shares = shares
        self.chosen = chosen
        self.width = width
        # Themselves, not their data, which another memory format puts elsewhere.
        self.trained = dict(parameters)
        self.start = [weight.detach().clone() for weight in self.trained.values()]
        self.count = sum(weight.numel() for weight in self.start)
        self.length = torch.nn.utils.get_total_norm(self.start).to(shares.frequency)
        for name in ("entropy", "host", "ema", "gain"):
            self.register_buffer(name, torch.zeros_like(self.length))
        self._seen: Seen | None = None

    def weigh(self, step: Step, loss: Tensor | None, descent: Descent) -> None:
        if step.before is not None:
            return  # a second look goes by the weights of the first
        self._seen = None
        spoken = {
            term.label: result.loss for term in self.own if (result := term(step)) is not None
        }
        forces = {label: step.force_of(own) for label, own in spoken.items() if own is not None}
        if not forces:
            for term in self.own:
                term.weight = 0.0
            return
        chosen = self.chosen(step)
        host = self.length.new_zeros(()) if loss is None else step.force_of(loss)
        fresh = {"entropy": step.force_of(step.entropy[chosen].mean()), "host": host}
        if "ema" in forces:
            fresh["ema"] = forces["ema"]
        averages = {name: follow(getattr(self, name), new) for name, new in fresh.items()}
        pace, pull = self._plan(len(chosen) / len(step.images), averages, descent)
        weights = {"src": pull * self.width / 2}
        if "ema" in averages:
            weights["ema"] = divided(pull, averages["ema"])
        for term in self.own:
            term.weight = weights.get(term.label, 0.0)
        force = host + sum(weights[label] * own_force for label, own_force in forces.items())
        prediction = step.detached_probabilities.mean(0)
        self._seen = Seen(averages, force, prediction, BACK * pace)

    def _plan(
        self, reliable: float, averages: Mapping[str, Tensor], descent: Descent
    ) -> tuple[Tensor, Tensor]:
        """p and a, if this share of the images is reliable."""
        entropy, host, count = averages["entropy"], averages["host"], len(self.own)
        if descent.lr == 0:
            return torch.zeros_like(entropy), torch.zeros_like(entropy)
        most, known = KAPPA * self.length, self.gain > 0
        if descent.optimizer == "adam":
            pace = divided(descent.lr * math.sqrt(self.count), most).clamp_max(1)
            return reliable * pace, reliable * torch.where(host > 0, host, entropy) / count
        within = divided(divided(WIDTH * self.width, self.gain), most).clamp_max(1)
        pace = reliable * torch.where(known, within, 1.0)
        pull = divided(pace * most, self.gain) * ((1 - descent.momentum) / (descent.lr * count))
        return pace, torch.where(known, pull, reliable * entropy / 3)

    def told(self, gradient: Mapping[str, Tensor | None]) -> Callable[[], None]:
        seen, self._seen = self._seen, None
        if seen is None:
            return _nothing
        gradients = [own for name in self.trained if (own := gradient[name]) is not None]
        norm = torch.nn.utils.get_total_norm(gradients).to(seen.force)
        averages = seen.averages | {"gain": follow(self.gain, divided(norm, seen.force))}

        def commit() -> None:
            for name, value in averages.items():
                getattr(self, name).copy_(value)
            self.shares.update(seen.prediction)
            torch._foreach_lerp_([*self.trained.values()], self.start, float(seen.back))

        return commit

    def forward(self, step: Step) -> TermResult | None:
        """It only weighs."""
        return None


def follow(old: Tensor, new: Tensor) -> Tensor:
    """An average that goes on; 0 tells nothing, and is no value to begin with."""
    return torch.where(old * new > 0, torch.lerp(new, old, OLD), torch.maximum(old, new))


def divided(numerator: Tensor | float, denominator: Tensor) -> Tensor:
    """Their ratio; 0 where there is none."""
    return torch.where(denominator > 0, numerator / denominator, 0.0)


def _nothing() -> None:
    pass
