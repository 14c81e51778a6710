"""All that changes along a stream: by name, so that it can be saved, put back and begun anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.engine.activity import Activity
from holdfast.engine.collapse import Watch
from holdfast.engine.network import Network
from holdfast.engine.task import Task
from holdfast.engine.window import Window
from holdfast.parts.learn import Learn
from holdfast.parts.predict import Prediction
from holdfast.parts.terms import Term
from holdfast.parts.upkeep import Upkeep
from holdfast.util import files

# What a collapse or a reset rule takes back; the rest only observes.
LEARNT = ("model/", "teacher/", "optimizer/", "terms/", "prediction/")

HELD = ("window", "memory/")

# Ends of names that files of version 0.1 do not hold: what only observes, and begins anew.
SINCE_0_1 = ("activity/taken", "activity/due", "activity/told", "/weight")


class Before(NamedTuple):
    """What was before a batch: the random state, and all the rest where steps are taken at once."""

    draws: Tensor
    live: Mapping[str, Tensor] = {}


@dataclass
class State:
    """The state of a method's parts, of the watch, the window, and the number of batches."""

    task: Task
    terms: list[Term]
    prediction: Prediction
    upkeep: list[Upkeep]
    learn: Learn | None
    watch: Watch | None
    window: Window
    activity: Activity = field(default_factory=Activity)
    batches: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.int64))

    @property
    def networks(self) -> list[Network]:
        """The network that adapts, and those beside it."""
        return [self.task.network, *self.task.companions]

    def live(self) -> dict[str, Tensor]:
        """Every tensor that changes, by name; the tensors themselves."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "model": self.task.parameters,
            "optimizer": self.learn.live() if self.learn else {},
            "watch": self.watch.state_dict() if self.watch else {},
            "activity": self.activity.state_dict() if self.learn else {},
            "prediction": self.prediction.state_dict(),
        }
        parts |= {f"terms/{term.label}": term.state_dict() for term in self.terms}
        parts |= {f"upkeep/{i}": rule.state_dict() for i, rule in enumerate(self.upkeep)}
        if "teacher" in vars(self.task):  # only if a slot asked for one
            parts["teacher"] = self.task.teacher.parameters
        for index, network in enumerate(self.networks):
            if network.statistics is not None:
                # Where predictions depend on them, statistics are a part of what was learnt.
                kind = "model/statistics" if network.statistics.learnt else "statistics"
                parts[f"{kind}/{index}"] = network.statistics.live()
        return {"batches": self.batches} | {
            f"{part}/{name}": tensor.detach()
            for part, tensors in parts.items()
            for name, tensor in tensors.items()
        }

    def copied(self) -> dict[str, Tensor]:
        return _clones(self.live())

    def learnt(self) -> dict[str, Tensor]:
        """A copy of what was learnt."""
        return _clones(learnt(self.live()))

    @torch.no_grad()
    def write(self, state: Mapping[str, Tensor]) -> None:
        live = self.live()
        with torch.inference_mode(False):
            for name, tensor in state.items():
                live[name].copy_(tensor)

    def held(self) -> dict[str, Tensor]:
        """What else is kept, of a size that is not known before the stream: images."""
        images = self.window.images
        held = {} if images is None else {"window": images}
        if self.learn is not None:
            held |= {f"memory/{name}": tensor for name, tensor in self.learn.held().items()}
        return held

    def hold(self, held: Mapping[str, Tensor]) -> None:
        """Take back what `held` gave; nothing: begin without."""
        images = held.get("window")
        self.window.images = None if images is None else self.task.network.prepare(images)
        if self.learn is not None:
            self.learn.hold(files.under("memory/", held))

    def begin(self) -> Before:
        """A batch begins: what it takes to undo it."""
        for network in self.networks:
            network.forwards = 0
            if network.statistics is not None:
                network.statistics.remember()
        draws = self.task.draws.state
        if self.learn is None or not self.learn.at_once:
            return Before(draws)
        self.learn.remember()
        return Before(draws, self.copied())

    def undo(self, before: Before) -> None:
        """Leave all as it was at `begin`."""
        self.task.draws.state = before.draws
        for network in self.networks:
            if network.statistics is not None:
                network.statistics.put_back()
        if self.learn is not None:
            self.learn.clear()
            if self.learn.at_once:
                self.write(before.live)
                self.learn.put_back()


def _clones(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def learnt(state: Mapping[str, Tensor], *, optimizer: bool = True) -> dict[str, Tensor]:
    """The part of a state that was learnt, with or without the optimiser's."""
    found = {name: tensor for name, tensor in state.items() if name.startswith(LEARNT)}
    return found if optimizer else {n: t for n, t in found.items() if n[:10] != "optimizer/"}
