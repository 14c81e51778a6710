"""All that changes along a stream: by name, so that it can be saved, put back and begun anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast.engine.activity import Activity
from holdfast.engine.collapse import Watch
from holdfast.engine.slots import Slots
from holdfast.engine.window import Window
from holdfast.parts.route import Route
from holdfast.util import files

# What a collapse or a reset rule takes back; the rest only observes.
LEARNT = ("model/", "teacher/", "optimizer/", "terms/", "prediction/", "refine/")

EXTRA = ("window", "memory/")

# Ends of names that files of version 0.1 do not hold: what only observes, and begins anew.
SINCE_0_1 = ("activity/taken", "activity/due", "activity/told", "/weight")


class Before(NamedTuple):
    """What was before a batch: the random state, and all tensors where proposing changes them."""

    draws: Tensor
    tensors: Mapping[str, Tensor] = {}


class State:
    """The state of a method's parts, of the watch, the window, and the number of batches."""

    def __init__(self, slots: Slots, window: int | None):
        network = slots.task.network
        self.slots = slots
        self.learn = slots.learn
        self.draws = slots.task.draws
        self.window = Window(window)
        self.watch = Watch(network.head_rows) if network.head_name else None
        self.activity = Activity()
        self.batches = torch.zeros((), dtype=torch.int64)
        self.route: Route | None = None
        self.route = self._find_route()
        self._fresh = self.snapshot()
        self._fresh_draws = self.draws.state

    def _find_route(self) -> Route | None:
        task = self.slots.task
        learnt = self.learnt()
        found = {part.name: part.route(task, learnt) for part in self.slots.method.methods}
        routes = {name: route for name, route in found.items() if route is not None}
        if len(routes) > 1:
            raise ValueError(
                f"{' and '.join(routes)} each choose the state that a batch meets: leave one out."
            )
        return next(iter(routes.values()), None)

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that changes, by name; the tensors themselves."""
        slots, task = self.slots, self.slots.task
        parts: dict[str, Mapping[str, Tensor]] = {
            "model": task.parameters,
            "optimizer": self.learn.tensors() if self.learn else {},
            "watch": self.watch.state_dict() if self.watch else {},
            "activity": self.activity.state_dict() if self.learn else {},
            "prediction": slots.prediction.state_dict(),
            "route": self.route.state_dict() if self.route else {},
        }
        parts |= {f"terms/{term.label}": term.state_dict() for term in slots.terms}
        parts |= {f"refine/{i}": rule.state_dict() for i, rule in enumerate(slots.refine)}
        parts |= {f"upkeep/{i}": rule.state_dict() for i, rule in enumerate(slots.upkeep)}
        if "teacher" in vars(task):  # only if a slot asked for one
            parts["teacher"] = task.teacher.parameters
        for index, network in enumerate(slots.networks):
            if network.statistics is not None:
                # Where predictions depend on them, statistics are a part of what was learnt.
                kind = "model/statistics" if network.statistics.learnt else "statistics"
                parts[f"{kind}/{index}"] = network.statistics.tensors()
        return {"batches": self.batches} | {
            f"{part}/{name}": tensor.detach()
            for part, tensors in parts.items()
            for name, tensor in tensors.items()
        }

    def snapshot(self) -> dict[str, Tensor]:
        """A copy of every tensor that changes."""
        return _clones(self.tensors())

    def learnt(self) -> dict[str, Tensor]:
        """What was learnt; the tensors themselves."""
        return _learnt(self.tensors())

    def healthy(self) -> dict[str, Tensor]:
        """A copy of what was learnt."""
        return _clones(self.learnt())

    @torch.no_grad()
    def write(self, state: Mapping[str, Tensor]) -> None:
        tensors = self.tensors()
        with torch.inference_mode(False):
            for name, tensor in state.items():
                tensors[name].copy_(tensor)

    @contextmanager
    def meeting(self, state: Mapping[str, Tensor] | None) -> Iterator[None]:
        """With these values inside, and then with those of before."""
        tensors = self.tensors()
        before = {name: tensors[name].clone() for name in state or {}}
        try:
            self.write(state or {})
            yield
        finally:
            self.write(before)

    def fresh(self) -> dict[str, Tensor]:
        """What had been learnt at the beginning: nothing."""
        return _learnt(self._fresh)

    def reset(self) -> None:
        """All is as at the beginning."""
        self.write(self._fresh)
        self.draws.state = self._fresh_draws
        self.load_extra_state({})

    def forget(self, *, optimizer: bool = True) -> None:
        """Take back what was learnt, with or without the optimiser's state; counters go on."""
        fresh = self.fresh()
        if not optimizer:
            fresh = {n: t for n, t in fresh.items() if not n.startswith("optimizer/")}
        self.write(fresh)

    def extra_state(self) -> dict[str, Tensor]:
        """What else there is, of a size that is not known before the stream: images."""
        images = self.window.images
        extra = {} if images is None else {"window": images}
        if self.learn is not None:
            extra |= {f"memory/{name}": t for name, t in self.learn.extra_state().items()}
        return extra

    def load_extra_state(self, saved: Mapping[str, Tensor]) -> None:
        """Take back what `extra_state` gave; nothing: begin without."""
        images = saved.get("window")
        prepare = self.slots.task.network.prepare
        self.window.images = None if images is None else prepare(images)
        if self.learn is not None:
            self.learn.load_extra_state(files.under("memory/", saved))

    def saved(self) -> dict[str, Tensor]:
        """All that a file holds of it."""
        return {**self.tensors(), **self.extra_state(), "draws": self.draws.state}

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Take over what `saved` gave, in this version or an older one."""
        names = [n for n in self.tensors() if n in saved or not n.endswith(SINCE_0_1)]
        self.write({name: saved[name] for name in names})
        for network in self.slots.networks:
            if network.statistics is not None:
                network.statistics.loaded()
        self.draws.state = saved["draws"]
        self.load_extra_state({name: saved[name] for name in saved if name.startswith(EXTRA)})

    def begin(self) -> Before:
        """A batch begins: what it takes to undo it."""
        for network in self.slots.networks:
            network.forwards = 0
            if network.statistics is not None:
                network.statistics.snapshot()
        if not self._changes_at_once:
            return Before(self.draws.state)
        if self.learn is not None:
            self.learn.snapshot()
        return Before(self.draws.state, self.snapshot())

    def undo(self, before: Before) -> None:
        """Leave all as it was at `begin`."""
        self.draws.state = before.draws
        for network in self.slots.networks:
            if network.statistics is not None:
                network.statistics.restore()
        if self.learn is not None:
            self.learn.clear()
        if self._changes_at_once:
            self.write(before.tensors)
            if self.learn is not None:
                self.learn.restore()

    @property
    def _changes_at_once(self) -> bool:
        """Whether more than statistics changes before a batch has proved good."""
        at_once = self.learn is not None and self.learn.at_once
        return at_once or self.route is not None or self.slots.episode_steps > 0


def _clones(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _learnt(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in state.items() if name.startswith(LEARNT)}
