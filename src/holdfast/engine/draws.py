"""Randomness as state: an adapter draws from its own generator, and leaves torch's alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class Draws:
    """A generator on the CPU whose draws seed whatever random code runs in `scope`."""

    def __init__(self, seed: int, device: torch.device):
        self.device = device
        self.generator = torch.Generator().manual_seed(seed)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Seed torch's global generators from ours inside, and give them back as they were."""
        seed = int(torch.randint(2**62, (), generator=self.generator))
        if self.device.type == "cpu":
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                yield
            return
        accelerator = torch.get_device_module(self.device)
        with (
            torch.random.fork_rng(devices=[self.device], device_type=self.device.type),
            accelerator.device(self.device),
        ):
            torch.default_generator.manual_seed(seed)
            accelerator.manual_seed(seed)
            yield

    @contextmanager
    def restored(self) -> Iterator[None]:
        """What is drawn inside is drawn again afterwards."""
        state = self.state
        try:
            yield
        finally:
            self.state = state

    def copy(self) -> Draws:
        copied = Draws(0, self.device)
        copied.state = self.state
        return copied

    @property
    def state(self) -> Tensor:
        return self.generator.get_state()

    @state.setter
    def state(self, state: Tensor) -> None:
        self.generator.set_state(state)
