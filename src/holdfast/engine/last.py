"""What the last batch did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.parts.learn import Proposal


@dataclass(frozen=True)
class Last:
    """What the last batch did. Losses are before weighting; `images` is how many each was over.

    due: whether the method could have taken a step, had all been finite; stepped: whether it did.
    step_rate: the share of the last hundred steps that were due which it took, driven by some term;
    None where none was due yet. hardly_acts: it is below 5 % over a hundred.
    """

    batch: int = 0
    losses: Mapping[str, float] = field(default_factory=dict)
    images: Mapping[str, int] = field(default_factory=dict)
    reliable: int | None = None
    due: bool = False
    stepped: bool = False
    step_rate: float | None = None
    hardly_acts: bool = False
    gradient_norm: float | None = None
    refused: str | None = None
    collapsed: bool = False
    rolled_back: bool = False
    forwards: int = 0
    backwards: int = 0
    seconds: float = 0.0

    def news(self, method: str) -> list[str]:
        """What of it a person should be told."""
        found = []
        if self.refused is not None:
            found.append(
                self.refused if self.stepped else f"A batch was not adapted to: {self.refused}"
            )
        if self.collapsed:
            advice = "reset() starts again; adapt(…, rollback=True) goes back by itself."
            if self.rolled_back:
                advice = "The last healthy state was put back."
            found.append(
                f"{method} has collapsed: its predictions fall into a few classes. {advice}"
            )
        return found

    def inactivity(self, method: str, advice: list[str]) -> str:
        """What to tell a person of a method that hardly acts."""
        what = "; ".join(advice) or (
            "its filters leave out nearly every image; `holdfast card` shows what they are"
        )
        return (
            f"{method} took {100 * (self.step_rate or 0):.0f} of the last 100 steps that it could "
            f"have taken, so that it hardly adapts: {what}."
        )


class Inspection(NamedTuple):
    """A batch's losses and gradient norm as numbers, and what is wrong if one is not finite."""

    losses: dict[str, float]
    gradient_norm: float | None
    problem: str | None


def inspect(logits: list[Tensor], proposal: Proposal) -> Inspection:
    largest = torch.stack([values.detach().abs().amax() for values in logits]).amax()
    named = {"logits": largest, **proposal.losses}
    if proposal.gradient_norm is not None:
        named["gradient norm"] = proposal.gradient_norm.to(named["logits"])
    # All at once: on a GPU every number that is looked at waits for the device.
    values = dict(zip(named, torch.stack(list(named.values())).tolist(), strict=True))
    bad = [name for name, value in values.items() if not math.isfinite(value)]
    problem = f"{', '.join(bad)} turned NaN or Inf. Nothing was changed." if bad else None
    losses = {name: values[name] for name in proposal.losses}
    return Inspection(losses, values.get("gradient norm"), problem)
