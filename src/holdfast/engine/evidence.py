"""Whether a mean has risen, asked after every observation, with a stated rate of false alarms."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Evidence(nn.Module):
    """A time-uniform confidence sequence by betting, for the mean of numbers that are at least
    −`floor` (what lies below counts as −`floor`).

    A bet against "the mean is at most m" multiplies its stake by 1 + λ(x − m) with every
    observation x, λ = 0.9/(m + floor): if that is so, the stake is a supermartingale, and reaches
    1/a with a chance of at most a (Ville), however long one looks. A bet that has lost is begun
    anew, so that a rise is seen whenever it comes; the k-th has the share g(k) − g(k + 1) of
    `level`, g(k) = 1/(1 + log₂ k), and these add up to 1. (Waudby-Smith and Ramdas 2023 on bets;
    the restarts are a union bound; g falls slowly, for the sake of what comes late.)

    It rings while the bet against `tolerance` has won; a bet that has won keeps its stake at the
    threshold, so that it is lost soon after the mean has fallen again. `bound` is the largest of
    the means on a grid that are ruled out.
    """

    # Of the largest stake that cannot be lost whole.
    BOLD = 0.9
    # Means that are bet against, above the tolerance.
    GRID = tuple(0.025 * step for step in range(33))

    stakes: Tensor
    bets: Tensor
    rings: Tensor

    def __init__(self, level: float, tolerance: float, floor: float):
        super().__init__()
        self.level, self.floor = level, floor
        self.means = tolerance + torch.tensor(self.GRID, dtype=torch.float64)
        self.register_buffer("stakes", torch.zeros(len(self.GRID), dtype=torch.float64))
        self.register_buffer("bets", torch.ones((), dtype=torch.int64))
        self.register_buffer("rings", torch.zeros((), dtype=torch.bool))

    @property
    def threshold(self) -> float:
        """At which a bet has won, as a logarithm."""
        now, later = (1 / (1 + math.log2(bet)) for bet in (int(self.bets), int(self.bets) + 1))
        return -math.log(self.level * (now - later))

    def forward(self, observed: float) -> bool:
        """Take in an observation; True at the one at which it begins to ring."""
        over = max(observed, -self.floor) - self.means
        self.stakes += (over * self.BOLD / (self.means + self.floor)).log1p()
        self.stakes.clamp_max_(self.threshold)
        if float(self.stakes[0]) < 0:
            self.bets += 1
            self.stakes.zero_()
            self.rings.fill_(False)
            return False
        news = float(self.stakes[0]) >= self.threshold and not bool(self.rings)
        self.rings |= news
        return news

    @property
    def bound(self) -> float | None:
        """The mean since the bet began is above this, if anything is known."""
        won = self.stakes >= self.threshold
        return float(self.means[won].max()) if bool(won.any()) else None

    def start(self) -> None:
        """Bet anew, as after something else has changed; what has been spent of the level stays."""
        self.bets += 1
        self.stakes.zero_()
        self.rings.fill_(False)
