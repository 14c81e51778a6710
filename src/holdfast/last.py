"""What the last batch did."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from holdfast.learn import Proposal
from holdfast.step import Step


@dataclass(frozen=True)
class Last:
    """What the last batch did. Losses are before weighting; `images` is how many each was over."""

    batch: int = 0
    losses: Mapping[str, float] = field(default_factory=dict)
    images: Mapping[str, int] = field(default_factory=dict)
    reliable: int | None = None
    stepped: bool = False
    gradient_norm: float | None = None
    refused: str | None = None
    collapsed: bool = False
    rolled_back: bool = False
    forwards: int = 0
    backwards: int = 0
    seconds: float = 0.0


def inspect(step: Step, proposal: Proposal) -> tuple[dict[str, float], str | None]:
    """Losses and gradient norm as numbers, and what is wrong if one of them is not finite."""
    named = {"logits": step.logits.detach().abs().amax(), **proposal.losses}
    if proposal.gradient_norm is not None:
        named["gradient norm"] = proposal.gradient_norm.to(named["logits"])
    values = dict(zip(named, torch.stack(list(named.values())).tolist(), strict=True))
    bad = [name for name, value in values.items() if not math.isfinite(value)]
    del values["logits"]
    if not bad:
        return values, None
    return values, f"{', '.join(bad)} turned NaN or Inf. No weight or average was changed."
