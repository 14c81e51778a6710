"""Plain gradient descent: its settings, its optimiser, and the state that this begins with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

# Adam's usual ε is 0 in float16, and a weight without a gradient would be divided by it.
EPSILON, FLOAT16_EPSILON = 1e-8, 1e-4


@dataclass(frozen=True)
class Descent:
    """The settings of plain gradient descent."""

    lr: float
    momentum: float
    optimizer: Literal["sgd", "adam"]
    nesterov: bool
    # Not in the text by which RMT's warm-up, which has none, is kept.
    weight_decay: float = field(default=0.0, repr=False)

    def __post_init__(self) -> None:
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError(
                "nesterov=true is a form of SGD's momentum: it needs optimizer=sgd and a momentum "
                f"above 0, not optimizer={self.optimizer}, momentum={self.momentum:g}."
            )

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        rate, decay = self.lr, self.weight_decay
        if self.optimizer == "adam":
            parameters, betas = list(parameters), (self.momentum, 0.999)
            half = any(parameter.dtype is torch.float16 for parameter in parameters)
            epsilon = FLOAT16_EPSILON if half else EPSILON
            return torch.optim.Adam(
                parameters, lr=rate, betas=betas, eps=epsilon, weight_decay=decay
            )
        # foreach: the same to the bit, without a few calls for each of a hundred tensors.
        return torch.optim.SGD(
            parameters,
            lr=rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=decay,
            foreach=True,
        )


def first_state(descent: Descent, parameter: nn.Parameter) -> dict[str, Any]:
    """What torch would make at the first step, made before it: zeros give the same first step."""
    if descent.optimizer == "sgd":
        return {"momentum_buffer": torch.zeros_like(parameter)} if descent.momentum else {}
    return {
        "step": torch.zeros(()),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }
